//! What servers, cores and redis-rs take for a lock on a majority: the requests of [`DLOCK`](crate::results::DLOCK) for a
//! free lock, without the guarantees of its client.

use std::time::Instant;

use futures_util::future::try_join_all;
use futures_util::stream::{FuturesUnordered, TryStreamExt};
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;

use super::nodes::{Nodes, median_url};
use super::rules::{REDLOCK, connect, runtime};
use crate::Result;
use crate::results::stats::{Stats, ms, stats_of};

const ROUNDS: usize = 5;
/// Of each kind in a round.
const LOCKS: usize = 300;

/// From a request until the lock is granted, in milliseconds.
pub struct Waits {
    pub one_server: Stats,
    /// The first server, then all others at once, until a majority has granted the lock.
    pub majority: Stats,
    /// In the same rounds.
    pub ratio: Stats,
}

pub fn measure(nodes: &Nodes) -> Result<Waits> {
    let runtime = runtime()?;
    let urls = nodes.urls();
    let one = runtime.block_on(connect(&[median_url(&urls)?.into()]))?;
    let five = runtime.block_on(connect(&urls))?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push((median(&runtime, &one)?, median(&runtime, &five)?));
    }
    Ok(Waits {
        one_server: stats_of(&rounds, |round| round.0),
        majority: stats_of(&rounds, |round| round.1),
        ratio: stats_of(&rounds, |round| round.1 / round.0),
    })
}

fn median(runtime: &Runtime, connections: &[MultiplexedConnection]) -> Result<f64> {
    let wait = |number| runtime.block_on(wait(connections, &format!("owner-of-24-bytes-{number:06}")));
    let waits: Result<Vec<_>> = (0..LOCKS).map(wait).collect();
    Ok(Stats::of(waits?).median)
}

/// For a lock on a majority of these servers, which is then released.
async fn wait(connections: &[MultiplexedConnection], owner: &str) -> Result<f64> {
    let acquire = |connection| send(connection, (REDLOCK.acquire)("lock:redis-rs", owner));
    let (first, others) = connections.split_first().ok_or("there is no server")?;
    let begun = Instant::now();
    acquire(first).await?;
    let mut late: FuturesUnordered<_> = others.iter().map(acquire).collect();
    for _ in 0..others.len() / 2 {
        late.try_next().await?;
    }
    let wait = ms(begun.elapsed());
    while late.try_next().await?.is_some() {}
    let release = |connection| send(connection, (REDLOCK.release)("lock:redis-rs", owner));
    try_join_all(connections.iter().map(release)).await?;
    Ok(wait)
}

async fn send(connection: &MultiplexedConnection, command: redis::Cmd) -> Result<redis::Value> {
    Ok(command.query_async(&mut connection.clone()).await?)
}
