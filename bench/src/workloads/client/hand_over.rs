//! From the start of a release until the next owner has the lock.

use std::time::Instant;

use redis_dlock_client::{Guard, Lock, Locks};
use tokio::runtime::Runtime;

use crate::error::Result;
use crate::implementations::dlock::fence_of;
use crate::interrupt;
use crate::resp::{Connection, command};
use crate::results::DLOCK;
use crate::results::stats::stats_of;
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::comparison::Comparison;

const LEASE_MS: &str = "30000";
/// Maximum overhead of the client.
const TARGET_US: f64 = 100.0;

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
    let names = vec![DLOCK, "raw connections"];
    let us = Comparison::in_turns(names, bench.rounds(1001, 101), |_, index| {
        interrupt::check()?;
        if index == 0 {
            runtime.block_on(between_guards(&lock))
        } else {
            raw.hand_over()
        }
    })?;
    us.add(summary, threads, "hand-over", "us", |us| *us);
    let added = stats_of(&us.rounds, |round| round[0] - round[1]);
    let added = Figure::new("hand-over, added by the client", added)
        .unit("us")
        .case(threads);
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
        waiter.send_words(&["DLOCK.ACQUIRE", "door", next_owner, LEASE_MS, "BLOCK", "0"])?;
        while self.observer.info_number("dlock", "dlock_waiters")? != 1.0 {}
        let release = command(&["DLOCK.RELEASE", "door", owner]);
        let start = Instant::now();
        holder.send(&release)?;
        let grant = waiter.receive()?;
        let took = start.elapsed();
        fence_of(&grant)?;
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
        let from_queue = observer.info_number("dlock", "dlock_grants_from_queue");
        assert_eq!(from_queue.unwrap(), 2.0);
    }
}
