//! From the moment at which one begins to release a lock to the moment at which the next one has it.

use std::time::Instant;

use redis_dlock_client::{Guard, Lock, Locks};
use tokio::runtime::Runtime;

use super::{spread, url};
use crate::Result;
use crate::interrupt;
use crate::resp::{Connection, Reply};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::works::Bench;

const LEASE_MS: &str = "30000";
/// The client may add so much to what the server takes.
const TARGET_US: f64 = 100.0;

/// Microseconds.
struct Round {
    server: f64,
    guards: f64,
}

/// Two owners on connections of their own, and somebody who looks.
struct Bare {
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
    let mut bare = Bare::connect(server)?;
    let lock = Locks::open(url(server))?.lock("gate");
    let rounds = (0..bench.rounds(1001, 101))
        .map(|_| {
            interrupt::check()?;
            Ok(Round {
                server: bare.hand_over()?,
                guards: runtime.block_on(between_guards(&lock))?,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let figure =
        |metric, of: fn(&Round) -> f64| Figure::new(metric, spread(&rounds, of)).unit("us").case(threads);
    summary.add(figure("hand-over", |round| round.guards));
    summary.add(figure("hand-over", |round| round.server).of("bare connections"));
    let added = figure("hand-over, added by the client", |round| {
        round.guards - round.server
    });
    summary.add(added.at_most(TARGET_US));
    Ok(())
}

impl Bare {
    fn connect(server: &Server) -> Result<Self> {
        Ok(Self {
            holder: (server.connect()?, "alice"),
            waiter: (server.connect()?, "bob"),
            observer: server.connect()?,
        })
    }

    /// One thread sends the release, and reads the reply of the one that waits.
    fn hand_over(&mut self) -> Result<f64> {
        let ((holder, mine), (waiter, its)) = (&mut self.holder, &mut self.waiter);
        holder.call(&["DLOCK.ACQUIRE", "door", mine, LEASE_MS])?;
        waiter.send(&bytes(&["DLOCK.ACQUIRE", "door", its, LEASE_MS, "BLOCK", "0"]))?;
        while waiting(&self.observer.call(&["DLOCK.INFO", "door"])?) != Some(1) {}
        let release = bytes(&["DLOCK.RELEASE", "door", mine]);
        let start = Instant::now();
        holder.send(&release)?;
        let grant = waiter.receive()?;
        let took = start.elapsed();
        if !matches!(grant, Reply::Array(_)) {
            return Err(format!("no grant but {grant:?}").into());
        }
        holder.receive()?;
        waiter.call(&["DLOCK.RELEASE", "door", its])?;
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

/// How many wait, by a reply of INFO: names and values.
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

fn bytes(command: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    crate::resp::encode(command.iter().copied(), &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::works::client::runtime;
    use crate::works::testing::bench;

    #[test]
    fn a_lock_is_handed_over_to_one_that_waits() {
        let server = Server::start(&bench().module).unwrap();
        let mut bare = Bare::connect(&server).unwrap();
        assert!(bare.hand_over().unwrap() > 0.0);
        let lock = Locks::open(url(&server)).unwrap().lock("gate");
        assert!(runtime(1).unwrap().block_on(between_guards(&lock)).unwrap() > 0.0);
        // Of each two grants, one was waited for.
        let mut observer = server.connect().unwrap();
        assert_eq!(
            observer.info_number("dlock", "dlock_grants_from_queue").unwrap(),
            2.0
        );
    }
}
