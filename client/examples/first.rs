//! Work under a lock: `cargo run -p redis-dlock-client --example first`, with `make run` in another terminal.

use std::time::Duration;

use redis_dlock_client::{Error, Locks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    ship("redis://127.0.0.1:7379/").await
}

/// Ships an order that nobody else ships meanwhile.
pub async fn ship(address: &str) -> Result<(), Error> {
    // One for the whole application.
    let locks = Locks::open(address)?;

    // Waits for its turn, 30 s at most.
    let guard = locks.acquire("orders:42").await?;
    println!("shipping order 42 with fence {}", guard.fence());
    // The lease is renewed meanwhile. Nobody else ships this order.
    guard.release().await?;

    // Or: work that is cancelled when the lock is lost.
    let lock = locks
        .lock("orders:42")
        .lease(Duration::from_secs(10))
        .wait(Duration::from_secs(5));
    lock.run(async |guard| println!("counting with fence {}", guard.fence()))
        .await?;
    Ok(())
}
