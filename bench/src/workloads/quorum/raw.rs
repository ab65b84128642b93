//! What servers and cores take for a lock on a majority without any client library: blocking sockets of one thread.

use std::time::Instant;

use super::nodes::Nodes;
use crate::Result;
use crate::resp::Connection;
use crate::results::stats::{Stats, ms, stats_of};

const LEASE_MS: &str = "30000";
const ROUNDS: usize = 5;
/// Of each kind in a round.
const LOCKS: usize = 300;

/// From a request until the lock is granted, in milliseconds.
pub struct RawWaits {
    pub one_server: Stats,
    /// The first server, then all others, until a majority has granted the lock.
    pub majority: Stats,
}

pub fn measure(nodes: &Nodes) -> Result<RawWaits> {
    let mut connections = nodes.connect()?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let one_server = median(|owner| wait(&mut connections[..1], owner))?;
        let majority = median(|owner| wait(&mut connections, owner))?;
        rounds.push((one_server, majority));
    }
    Ok(RawWaits {
        one_server: stats_of(&rounds, |round| round.0),
        majority: stats_of(&rounds, |round| round.1),
    })
}

fn median(mut wait: impl FnMut(&str) -> Result<f64>) -> Result<f64> {
    let waits = (0..LOCKS).map(|number| wait(&format!("owner-of-24-bytes-{number:06}")));
    Ok(Stats::of(waits.collect::<Result<Vec<_>>>()?).median)
}

/// For a lock on a majority of these servers, which is then released. Replies are read in the order of sending: the
/// earliest ones, unless the scheduler decides otherwise.
fn wait(connections: &mut [Connection], owner: &str) -> Result<f64> {
    let needed = connections.len() / 2 + 1;
    let begun = Instant::now();
    for (server, connection) in connections.iter_mut().enumerate() {
        acquire(connection, owner)?;
        if server == 0 {
            connection.receive()?;
        }
    }
    for connection in &mut connections[1..needed] {
        connection.receive()?;
    }
    let wait = ms(begun.elapsed());
    for connection in &mut connections[needed..] {
        connection.receive()?;
    }
    for connection in connections.iter_mut() {
        release(connection, owner)?;
    }
    for connection in connections {
        connection.receive()?;
    }
    Ok(wait)
}

fn acquire(connection: &mut Connection, owner: &str) -> Result<()> {
    Ok(connection.send_words(&["DLOCK.ACQUIRE", "lock:raw", owner, LEASE_MS, "REQID", "1"])?)
}

fn release(connection: &mut Connection, owner: &str) -> Result<()> {
    Ok(connection.send_words(&["DLOCK.RELEASE", "lock:raw", owner, "REQID", "1"])?)
}
