//! Many tasks of one process that wait.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis_dlock_client::Locks;
use tokio::task::JoinSet;

use super::runtime::runtime;
use crate::error::Result;
use crate::locks::LEASE;
use crate::results::{DLOCK, Results};
use crate::scale::Scale;
use crate::server::Server;
use crate::wire::Connection;

const TASKS: usize = 100_000;
const KEYS: usize = 1_000;

/// All tasks wait for locks of somebody else, who then gives them up.
pub fn measure(scale: Scale, results: &mut Results) -> Result<()> {
    let (tasks, runtime) = (scale.count(TASKS), runtime(1)?);
    let (server, keys) = (Server::start()?, KEYS.min(tasks));
    let mut holder = server.connect()?;
    for key in 0..keys {
        holder.call(&["DLOCK.ACQUIRE", &name(key), "somebody", LEASE])?;
    }
    let locks = Locks::open(server.url())?;
    runtime.block_on(locks.ping())?;
    let order: Arc<Vec<Mutex<Vec<usize>>>> = Arc::new((0..keys).map(|_| Mutex::default()).collect());
    let before = resident_bytes()?;
    let mut waiting = JoinSet::new();
    for task in 0..tasks {
        let (lock, order) = (
            locks.lock(name(task % keys)).lease(Duration::from_secs(600)),
            Arc::clone(&order),
        );
        let wait = async move {
            let guard = lock.acquire().await?;
            let granted = order.get(task % keys).ok_or("no such lock")?;
            granted.lock().unwrap_or_else(PoisonError::into_inner).push(task);
            Ok(guard.release().await?)
        };
        waiting.spawn_on(wait, runtime.handle());
    }
    let mut control = server.connect()?;
    runtime.block_on(until_waiting(&mut control, tasks))?;
    let bytes = (resident_bytes()? - before) / tasks as f64;
    // Without the holder and this one.
    let connections = control.number("clients", "connected_clients")? - 2.0;
    for key in 0..keys {
        holder.call(&["DLOCK.RELEASE", &name(key), "somebody"])?;
    }
    while let Some(ended) = runtime.block_on(waiting.join_next()) {
        let outcome: Result<()> = ended?;
        outcome?;
    }
    let out_of_order = order.iter().map(|granted| {
        let granted = granted.lock().unwrap_or_else(PoisonError::into_inner);
        granted.windows(2).filter(|pair| pair[0] > pair[1]).count()
    });
    let mut row = results.round("waiting tasks", DLOCK, 0).clients(tasks);
    row.add("memory of a waiting task", "bytes", bytes.max(0.0))
        .add("connections", "", connections);
    row.add("grants out of order", "", out_of_order.sum::<usize>() as f64);
    Ok(())
}

/// The tasks run meanwhile.
async fn until_waiting(control: &mut Connection, tasks: usize) -> Result<()> {
    while control.number("dlock", "dlock_waiters")? < tasks as f64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
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
