//! Work that stops when its lock is lost: it is cancelled, or checks a token.
//!
//! `cargo run -p redis-dlock-client --example cancellation redis://127.0.0.1:7379/`

use std::time::Duration;

use redis_dlock_client::{Error, Locks};
use tokio::time::sleep;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).expect("the address of the server");
    let locks = Locks::open(address.as_str())?;
    println!("cancelled: {:?}", cancelled(&locks).await);
    println!("checked: {:?}", checked(&locks).await);
    Ok(())
}

/// The work is dropped at its next `await` when the lock is lost.
pub async fn cancelled(locks: &Locks) -> Result<(), Error> {
    let lock = locks.lock("report").lease(Duration::from_secs(2));
    lock.run(async |_guard| sleep(Duration::from_secs(60)).await)
        .await?;
    Ok(())
}

/// The work checks a token and ends in an orderly way. Returns how many steps it took; an error if the lock was lost.
pub async fn checked(locks: &Locks) -> Result<u32, Error> {
    let guard = locks
        .lock("report")
        .lease(Duration::from_secs(2))
        .acquire()
        .await?;
    let token = guard.token();
    let mut steps = 0;
    while !token.is_cancelled() && steps < 600 {
        sleep(Duration::from_millis(100)).await;
        steps += 1;
    }
    // Awaited, because the program may end before a dropped guard is released.
    guard.release().await?;
    Ok(steps)
}
