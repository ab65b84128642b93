//! The first example of docs/client.md.

use std::time::Duration;

use redis_dlock_client::{Error, Locks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    ship("redis://127.0.0.1:7379/").await
}

/// Ships an order that nobody else ships meanwhile.
pub async fn ship(server: &str) -> Result<(), Error> {
    // One for the whole application.
    let locks = Locks::open(server)?;

    // Waits for its turn. The lease is renewed until the release.
    let guard = locks.acquire("orders:42").await?;
    println!("shipping order 42 with fence {}", guard.fence());
    guard.release().await?;

    // Or: work that is cancelled when the lock is lost, and a limit for waiting.
    let lock = locks.lock("orders:42").timeout(Duration::from_secs(5));
    lock.run(async |guard| println!("counting with fence {}", guard.fence()))
        .await?;
    Ok(())
}
