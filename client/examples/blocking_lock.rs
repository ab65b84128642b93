//! The same for threads that block.
//!
//! `cargo run -p redis-dlock-client --example blocking_lock redis://127.0.0.1:7379/`

use std::time::Duration;

use redis_dlock_client::{Error, Locks};

fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).expect("the address of the server");
    let fence = run(&address)?;
    println!("shipped under fence {fence}");
    Ok(())
}

/// The fence under which the order was shipped.
pub fn run(address: &str) -> Result<u64, Error> {
    let locks = Locks::open(address)?;
    let lock = locks
        .lock("orders:42")
        .lease(Duration::from_secs(10))
        .wait(Duration::from_secs(5));
    let guard = lock.blocking_acquire()?;
    let fence = guard.fence();
    // Nothing can cancel a thread: long work looks at the guard from time to time.
    if let Some(reason) = guard.lost_reason() {
        return Err(Error::Lost(reason));
    }
    guard.blocking_release()?;
    Ok(fence)
}
