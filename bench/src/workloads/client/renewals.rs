//! Renewals of many guards that are held by one process.

use std::time::Duration;

use redis_dlock_client::Locks;
use tokio::task::JoinSet;

use super::runtime::runtime;
use crate::error::Result;
use crate::machine::cpu_seconds;
use crate::results::{DLOCK, Results};
use crate::scale::Scale;
use crate::server::Server;

const GUARDS: usize = 10_000;

pub fn measure(scale: Scale, results: &mut Results) -> Result<()> {
    let guards = scale.count(GUARDS);
    for round in 0..scale.rounds(3) {
        let percent = runtime(1)?.block_on(cpu_percent(guards, scale.window() * 2))?;
        let mut row = results.round("held guards", DLOCK, round).clients(guards);
        row.add("CPU for renewals", "% of a core", percent);
    }
    Ok(())
}

/// The CPU of this process over the length of a lease, in which each guard renews three times.
async fn cpu_percent(guards: usize, lease: Duration) -> Result<f64> {
    let server = Server::start()?;
    let locks = Locks::open(server.url())?;
    let mut acquiring = JoinSet::new();
    for key in 0..guards {
        let lock = locks.lock(format!("lock:{key}")).lease(lease);
        acquiring.spawn(async move { lock.acquire().await });
    }
    let mut held = Vec::with_capacity(guards);
    while let Some(guard) = acquiring.join_next().await {
        held.push(guard??);
    }
    let before = cpu_seconds();
    tokio::time::sleep(lease).await;
    let percent = (cpu_seconds() - before) / lease.as_secs_f64() * 100.0;
    let are_held = held.iter().all(redis_dlock_client::Guard::is_held);
    // Before the server ends, so that the next round is not measured beside their releases.
    drop(held);
    locks.shutdown().await;
    if are_held {
        Ok(percent)
    } else {
        Err("a lease was not renewed".into())
    }
}
