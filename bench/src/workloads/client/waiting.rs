//! Many tasks of one process that wait, and one that waits beside others.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis_dlock_client::{Lock, Locks};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::error::Result;
use crate::results::stats::{Stats, ms};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;

const LEASE: Duration = Duration::from_secs(600);
const KEYS: usize = 1_000;
/// A lock that others give back at this rate.
const SECTION: Duration = Duration::from_millis(5);
/// Tasks that wait for other locks meanwhile.
const OTHERS: usize = 64;

/// What tasks that waited have found.
struct Waited {
    bytes_per_task: f64,
    connections: f64,
    out_of_order: f64,
    /// From the first release until the last grant.
    all_granted: Duration,
}

pub fn measure(bench: &Bench, runtime: &Runtime, summary: &mut Summary) -> Result<()> {
    let tasks = bench.rounds(100_000, 10_000);
    let case = format!("{tasks} tasks, {KEYS} locks");
    bench.progress.step("client", &case);
    let waited = many(runtime, tasks)?;
    let figure = |metric, value| Figure::new(metric, Stats::of([value])).case(&case);
    summary.add(
        figure("memory of a waiting task", waited.bytes_per_task)
            .unit("bytes")
            .at_most(1_500.0),
    );
    summary.add(figure("connections", waited.connections).at_most(2.0));
    summary.add(figure("grants out of order", waited.out_of_order).at_most(0.0));
    summary.add(figure("all granted", ms(waited.all_granted)).ms());
    bench.progress.step("client", "a wait beside others");
    let waits = bench.rounds(600, 100);
    let ratio = runtime.block_on(beside_others(waits))?;
    let figure = Figure::new(
        "wait for a busy lock beside 64 waiting tasks / alone",
        Stats::of([ratio]),
    );
    summary.add(figure.at_most(1.2));
    Ok(())
}

/// All tasks wait for locks of somebody else, who then gives them up.
fn many(runtime: &Runtime, tasks: usize) -> Result<Waited> {
    let server = Server::start()?;
    let mut holder = server.connect()?;
    let lease_ms = LEASE.as_millis().to_string();
    for key in 0..KEYS {
        holder.call(&["DLOCK.ACQUIRE", &name(key), "somebody", &lease_ms])?;
    }
    let locks = Locks::open(server.url())?;
    runtime.block_on(locks.ping())?;
    let order: Arc<Vec<Mutex<Vec<usize>>>> = Arc::new((0..KEYS).map(|_| Mutex::default()).collect());
    let before = resident_bytes()?;
    let mut waiting = JoinSet::new();
    for task in 0..tasks {
        let (lock, order) = (locks.lock(name(task % KEYS)).lease(LEASE), Arc::clone(&order));
        let wait = async move {
            let guard = lock.acquire().await.map_err(|error| error.to_string())?;
            let granted = order.get(task % KEYS).ok_or("no such lock")?;
            granted.lock().unwrap_or_else(PoisonError::into_inner).push(task);
            guard.release().await.map_err(|error| error.to_string())
        };
        waiting.spawn_on(wait, runtime.handle());
    }
    let mut control = server.connect()?;
    while control.info_number("dlock", "dlock_waiters")? < tasks as f64 {
        // The tasks run meanwhile.
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    }
    let bytes_per_task = (resident_bytes()? - before) / tasks as f64;
    // Without the holder and this one.
    let connections = control.info_number("clients", "connected_clients")? - 2.0;
    let start = Instant::now();
    for key in 0..KEYS {
        holder.call(&["DLOCK.RELEASE", &name(key), "somebody"])?;
    }
    while let Some(ended) = runtime.block_on(waiting.join_next()) {
        ended??;
    }
    let out_of_order = order.iter().map(|granted| {
        let granted = granted.lock().unwrap_or_else(PoisonError::into_inner);
        granted.windows(2).filter(|pair| pair[0] > pair[1]).count() as f64
    });
    Ok(Waited {
        bytes_per_task,
        connections,
        out_of_order: out_of_order.sum(),
        all_granted: start.elapsed(),
    })
}

/// The mean wait of one task for a lock that another process gives back every few milliseconds: while other tasks of its
/// process wait for other locks, divided by that without them.
async fn beside_others(waits: usize) -> Result<f64> {
    let server = Server::start()?;
    let (ours, theirs) = (Locks::open(server.url())?, Locks::open(server.url())?);
    let churn = tokio::spawn(give_back_repeatedly(theirs.lock("busy")));
    let busy = ours.lock("busy");
    let alone = mean_wait(&busy, waits).await?;
    let mut held = Vec::new();
    for key in 0..4 {
        held.push(theirs.acquire(name(key)).await?);
    }
    let mut others = JoinSet::new();
    for task in 0..OTHERS {
        let lock = ours.lock(name(task % 4));
        others.spawn(async move { lock.acquire().await.map(drop) });
    }
    let mut control = server.connect()?;
    while control.info_number("dlock", "dlock_waiters")? < OTHERS as f64 {
        tokio::time::sleep(SECTION).await;
    }
    let beside = mean_wait(&busy, waits).await?;
    churn.abort();
    Ok(beside.as_secs_f64() / alone.as_secs_f64())
}

async fn give_back_repeatedly(lock: Lock) -> std::result::Result<(), redis_dlock_client::Error> {
    loop {
        let guard = lock.acquire().await?;
        tokio::time::sleep(SECTION).await;
        guard.release().await?;
    }
}

async fn mean_wait(lock: &Lock, waits: usize) -> Result<Duration> {
    let mut waited = Duration::ZERO;
    for _ in 0..waits {
        let start = Instant::now();
        let guard = lock.acquire().await?;
        waited += start.elapsed();
        guard.release().await?;
        // The other one is first in the queue again.
        tokio::time::sleep(SECTION / 5).await;
    }
    Ok(waited / u32::try_from(waits)?)
}

fn name(key: usize) -> String {
    format!("lock:{key}")
}

/// Of this process.
fn resident_bytes() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("no VmRSS in /proc/self/status")?.parse::<f64>()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::client::runtime;

    #[test]
    fn tasks_wait_on_two_connections_in_order() {
        let waited = many(&runtime(1).unwrap(), 3 * KEYS).unwrap();
        assert_eq!((waited.connections, waited.out_of_order), (2.0, 0.0));
        assert!(waited.bytes_per_task > 0.0);
    }

    #[test]
    fn busy_lock_is_granted_beside_other_waiting_tasks() {
        let ratio = runtime(2).unwrap().block_on(beside_others(10)).unwrap();
        assert!(ratio > 0.0 && ratio < 20.0, "{ratio}");
    }
}
