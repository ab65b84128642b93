//! A lock on a majority of independent servers (Redlock, with fences and a queue): it survives the loss of a minority.
//!
//! `cargo run -p redis-dlock-quorum --example quorum redis://10.0.0.1/ redis://10.0.1.1/ redis://10.0.2.1/`

use std::time::Duration;

use redis_dlock_quorum::{Error, Locks};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let servers: Vec<String> = std::env::args().skip(1).collect();
    println!("done, with fence {:?}", run(&servers).await?);
    Ok(())
}

/// The fence under which the lock was held.
pub async fn run(servers: &[String]) -> Result<Option<u64>, Error> {
    let locks = Locks::open(servers)?;
    let lock = locks.lock("orders:42").timeout(Duration::from_secs(5));
    let guard = lock.acquire().await.inspect_err(|error| {
        // It names the servers that did not agree.
        eprintln!("no lock: {error}");
    })?;
    // ... send it along with every write
    let fence = guard.fence();
    guard.release().await?;
    Ok(fence)
}
