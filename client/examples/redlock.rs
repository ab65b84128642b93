//! A lock on a majority of independent servers: it survives the loss of a minority.
//!
//! `cargo run -p redis-dlock-client --example redlock redis://10.0.0.1/ redis://10.0.1.1/ redis://10.0.2.1/`

use std::time::Duration;

use redis_dlock_client::{Error, redlock};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let addresses: Vec<String> = std::env::args().skip(1).collect();
    let remained = run(&addresses).await?;
    println!("held, for another {remained:?} if nothing had renewed it");
    Ok(())
}

/// For how long the lock was certain when it was granted.
pub async fn run(addresses: &[String]) -> Result<Duration, Error> {
    let locks = redlock::Locks::open(addresses.iter().map(String::as_str))?;
    let guard = match locks
        .lock("orders:42")
        .wait(Duration::from_secs(5))
        .acquire()
        .await
    {
        Ok(guard) => guard,
        Err(error) => {
            // It names the servers that did not agree.
            eprintln!("no lock: {error}");
            return Err(error);
        }
    };
    let remained = guard.remaining();
    guard.release().await?;
    Ok(remained)
}
