//! Renewals of many guards that are held by one process.

use std::time::{Duration, Instant};

use redis_dlock_client::Locks;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::cpu_time::cpu_time;
use crate::error::Result;
use crate::results::stats::Stats;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;

const LEASE: Duration = Duration::from_secs(10);

pub fn measure(bench: &Bench, runtime: &Runtime, summary: &mut Summary) -> Result<()> {
    let guards = bench.rounds(10_000, 1_000);
    let case = format!("{guards} guards with a lease of 10 s");
    bench.progress.step("client", &case);
    let shares = (0..bench.rounds(3, 1)).map(|_| runtime.block_on(cpu_share(guards)));
    let shares = Stats::of(shares.collect::<Result<Vec<_>>>()?);
    let figure = Figure::new("CPU for renewals, in percent of a core", shares);
    summary.add(figure.case(case).at_most(5.0));
    Ok(())
}

/// The CPU of this process over the length of a lease, in which each guard renews three times, in percent of a core.
async fn cpu_share(guards: usize) -> Result<f64> {
    let server = Server::start()?;
    let locks = Locks::open(server.url())?;
    let mut acquiring = JoinSet::new();
    for key in 0..guards {
        let lock = locks.lock(format!("lock:{key}")).lease(LEASE);
        acquiring.spawn(async move { lock.acquire().await });
    }
    let mut held = Vec::with_capacity(guards);
    while let Some(guard) = acquiring.join_next().await {
        held.push(guard??);
    }
    let (start, before) = (Instant::now(), cpu_time());
    tokio::time::sleep(LEASE).await;
    let share = (cpu_time() - before).as_secs_f64() / start.elapsed().as_secs_f64() * 100.0;
    if held.iter().any(|guard| !guard.is_held()) {
        return Err("a lease was not renewed".into());
    }
    Ok(share)
}
