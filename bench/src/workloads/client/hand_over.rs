//! From the start of a release until the next owner has the lock.

use std::time::Instant;

use redis_dlock_client::{Guard, Lock, Locks};
use tokio::runtime::Runtime;

use crate::Result;
use crate::interrupt;
use crate::resp::{Connection, Reply, command};
use crate::results::stats::stats_of;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::Bench;

const LEASE_MS: &str = "30000";
/// Maximum overhead of the client.
const TARGET_US: f64 = 100.0;

/// Microseconds.
struct Round {
    server: f64,
    guards: f64,
}

/// Two owners and an observer, each with a connection.
struct RawClients {
    holder: (Connection, &'static str),
    waiter: (Connection, &'static str),
    observer: Connection,
}

pub fn measure(
    bench: &Bench,
    server: &Server,
    runtime: &Runtime,
    threads: &str,
    summary: &mut Summary,
) -> Result<()> {
    bench.progress.step("client", &format!("{threads}, hand-over"));
    let mut raw = RawClients::connect(server)?;
    let lock = Locks::open(server.url())?.lock("gate");
    let rounds = (0..bench.rounds(1001, 101))
        .map(|_| {
            interrupt::check()?;
            Ok(Round {
                server: raw.hand_over()?,
                guards: runtime.block_on(between_guards(&lock))?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let figure = |metric, of: fn(&Round) -> f64| {
        Figure::new(metric, stats_of(&rounds, of))
            .unit("us")
            .case(threads)
    };
    summary.add(figure("hand-over", |round| round.guards));
    summary.add(figure("hand-over", |round| round.server).of("raw connections"));
    let added = figure("hand-over, added by the client", |round| {
        round.guards - round.server
    });
    summary.add(added.at_most(TARGET_US));
    Ok(())
}

impl RawClients {
    fn connect(server: &Server) -> Result<Self> {
        Ok(Self {
            holder: (server.connect()?, "alice"),
            waiter: (server.connect()?, "bob"),
            observer: server.connect()?,
        })
    }

    /// One thread sends the release and reads the reply of the waiter.
    fn hand_over(&mut self) -> Result<f64> {
        let ((holder, owner), (waiter, next_owner)) = (&mut self.holder, &mut self.waiter);
        holder.call(&["DLOCK.ACQUIRE", "door", owner, LEASE_MS])?;
        waiter.send(&command(&[
            "DLOCK.ACQUIRE",
            "door",
            next_owner,
            LEASE_MS,
            "BLOCK",
            "0",
        ]))?;
        while waiting(&self.observer.call(&["DLOCK.INFO", "door"])?) != Some(1) {}
        let release = command(&["DLOCK.RELEASE", "door", owner]);
        let start = Instant::now();
        holder.send(&release)?;
        let grant = waiter.receive()?;
        let took = start.elapsed();
        if !matches!(grant, Reply::Array(_)) {
            return Err(format!("unexpected reply: {grant:?}").into());
        }
        holder.receive()?;
        waiter.call(&["DLOCK.RELEASE", "door", next_owner])?;
        Ok(took.as_secs_f64() * 1e6)
    }
}

async fn between_guards(lock: &Lock) -> Result<f64> {
    let guard = lock.acquire().await?;
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.map(|guard| (Instant::now(), guard)) }
    });
    while lock.info().await?.is_none_or(|info| info.waiting == 0) {}
    let start = Instant::now();
    guard.release().await?;
    let (granted, next): (Instant, Guard) = waiter.await??;
    next.release().await?;
    Ok((granted - start).as_secs_f64() * 1e6)
}

/// The number of waiters in a reply of DLOCK.INFO: names and values.
fn waiting(reply: &Reply) -> Option<i64> {
    let Reply::Array(fields) = reply else { return None };
    let name = fields
        .iter()
        .position(|field| matches!(field, Reply::Bulk(text) if text == b"waiting"))?;
    match fields.get(name + 1) {
        Some(Reply::Integer(waiting)) => Some(*waiting),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::client::runtime;

    #[test]
    fn hand_over_to_a_waiter_is_timed() {
        let server = Server::start().unwrap();
        let mut raw = RawClients::connect(&server).unwrap();
        assert!(raw.hand_over().unwrap() > 0.0);
        let lock = Locks::open(server.url()).unwrap().lock("gate");
        assert!(runtime(1).unwrap().block_on(between_guards(&lock)).unwrap() > 0.0);
        // One of each two grants came from the queue.
        let mut observer = server.connect().unwrap();
        assert_eq!(
            observer.info_number("dlock", "dlock_grants_from_queue").unwrap(),
            2.0
        );
    }
}
