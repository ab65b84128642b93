//! Several processes, of which one leads: it writes, and starts the job of each period. When it ends, hangs or is cut off,
//! the next one takes over, and what it may still write is refused.
//!
//! `cargo run -p redis-dlock-client --example jobs redis://127.0.0.1:7379/ alice`

use std::time::Duration;

use redis_dlock_client::redis::cmd;
use redis_dlock_client::{Error, Guard, Locks, Owner, RunError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// How soon another one leads after a crash.
const LEASE: Duration = Duration::from_secs(1);
/// How often the job is done, by whichever process.
const PERIOD: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let server = args.next().expect("the address of the server");
    let name = args.next().expect("the name of this process");
    let locks = Locks::open(&server)?;
    let mut terminate = signal(SignalKind::terminate()).expect("a handler of SIGTERM");
    // When this ends the guard is dropped, and the next one leads at once.
    tokio::select! {
        outcome = lead(&locks, &name) => outcome,
        _ = terminate.recv() => Ok(()),
    }
}

/// Leads again and again.
pub async fn lead(locks: &Locks, name: &str) -> Result<(), Error> {
    // The name shows who leads: `DLOCK.OWNER leader`. Alone it would not do: another process of that name would share
    // the lead, and its fence.
    let owner = format!("{name}:{}", Owner::unique());
    let lock = locks.lock("{jobs}:leader").owner(owner).lease(LEASE);
    loop {
        // The others stand in the queue, without polling.
        match lock.try_run(async |guard| work(locks, name, guard).await).await {
            Ok(()) => {}
            Err(RunError::NotAcquired(error)) if !error.is_transient() => return Err(error),
            Err(error) => eprintln!("{name} leads no more: {error}"),
        }
    }
}

async fn work(locks: &Locks, name: &str, guard: &Guard) -> Result<(), Error> {
    println!("{name} leads under fence {}", guard.fence());
    loop {
        // Refused by the server if others lead, even if this process does not know yet.
        let entry = format!("{name} {}", guard.fence());
        let _: i64 = guard.query(cmd("RPUSH").arg("{jobs}:journal").arg(entry)).await?;
        run_job(locks, name).await?;
        sleep(LEASE / 10).await;
    }
}

/// Does the job of this period, unless it is done. One that fails is done again.
async fn run_job(locks: &Locks, name: &str) -> Result<(), Error> {
    let once = locks.lock("{jobs}:nightly").release_after(PERIOD);
    if let Some(guard) = once.try_acquire().await? {
        println!("{name} does the job");
        guard.release().await?;
    }
    Ok(())
}
