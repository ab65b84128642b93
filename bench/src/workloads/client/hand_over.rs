//! From the start of a release until the next task has the lock, beside the same between two raw connections.

use std::time::Instant;

use redis_dlock_client::{Lock, Locks};

use super::{RUNTIMES, runtime};
use crate::error::Result;
use crate::locks::LEASE;
use crate::results::{DLOCK, Results};
use crate::server::Server;
use crate::stats::Times;
use crate::wire::Connection;
use crate::workloads::Scale;
use crate::workloads::lock_owner::LockOwner;

const RAW: &str = "raw connections";

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    let server = Server::start()?;
    let mut owners = [
        LockOwner::new(&server, "door", "alice", LEASE)?,
        LockOwner::new(&server, "door", "bob", LEASE)?,
    ];
    let (lock, control) = (Locks::open(server.url())?.lock("gate"), &mut server.connect()?);
    for (threads, name) in RUNTIMES {
        let runtime = runtime(threads)?;
        for round in 0..scale.rounds(3) {
            let [mut ours, mut raw] = [Times::new()?, Times::new()?];
            let end = Instant::now() + scale.window();
            while Instant::now() < end {
                ours.record(runtime.block_on(between_guards(&lock))?)?;
                raw.record(between_connections(&mut owners, control)?)?;
            }
            for (implementation, times) in [(DLOCK, ours), (RAW, raw)] {
                results
                    .round(name, implementation, round)
                    .add("hand-over p50", "us", times.us(50.0));
            }
        }
    }
    Ok(())
}

/// One thread sends the release and reads the reply of the waiter.
fn between_connections(
    [holder, waiter]: &mut [LockOwner; 2],
    control: &mut Connection,
) -> Result<std::time::Duration> {
    holder.ask()?;
    holder.granted()?;
    waiter.ask()?;
    while control.number("dlock", "dlock_waiters")? != 1.0 {}
    let start = Instant::now();
    holder.send_release()?;
    waiter.granted()?;
    let took = start.elapsed();
    holder.released()?;
    waiter.send_release()?;
    waiter.released()?;
    Ok(took)
}

async fn between_guards(lock: &Lock) -> Result<std::time::Duration> {
    let guard = lock.acquire().await?;
    let next = lock.clone();
    let waiter = tokio::spawn(async move { next.acquire().await.map(|guard| (Instant::now(), guard)) });
    while lock.info().await?.is_none_or(|info| info.waiting == 0) {}
    let start = Instant::now();
    guard.release().await?;
    let (granted, next) = waiter.await??;
    next.release().await?;
    Ok(granted.saturating_duration_since(start))
}
