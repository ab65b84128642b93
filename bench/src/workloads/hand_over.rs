//! From the release of a lock until its next waiter has it, beside the server's own message to a blocked client.

use std::mem::swap;
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;

use super::lock_owner::LockOwner;
use crate::error::Result;
use crate::locks::{LEASE, fence_of};
use crate::machine::PinnedCores;
use crate::results::{DLOCK, Results};
use crate::scale::Scale;
use crate::server::Server;
use crate::stats::Times;
use crate::wire::{Connection, command};

/// The least that a reply to a blocked client can cost.
const BLPOP: &str = "RPUSH to BLPOP";

/// In microseconds: sleeping threads have to be woken up.
const IDLES: [u64; 5] = [0, 200, 1_000, 2_000, 10_000];

pub fn measure(scale: Scale, results: &mut Results) -> Result<()> {
    for round in 0..scale.rounds(3) {
        for idle in IDLES {
            let [locks, items] = one_round(scale, &Server::start()?, Duration::from_micros(idle))?;
            let case = format!("none, after {} ms idle", idle as f64 / 1e3);
            for (name, times) in [(DLOCK, locks), (BLPOP, items)] {
                let mut row = results.round(&case, name, round);
                row.add("p50", "us", times.us(50.0))
                    .add("p99", "us", times.us(99.0));
            }
        }
    }
    Ok(())
}

/// Two owners hand a lock, then an item back and forth. One thread reads all replies in the same way.
fn one_round(scale: Scale, server: &Server, idle: Duration) -> Result<[Times; 2]> {
    let _pinned = PinnedCores::pin(server)?;
    let (mut holder, mut other) = (
        LockOwner::new(server, "lock", "alice", LEASE)?,
        LockOwner::new(server, "lock", "bob", LEASE)?,
    );
    let control = &mut server.connect()?;
    let (pop, push) = (
        command(&["BLPOP", "list", "0"]),
        command(&["RPUSH", "list", "item"]),
    );
    let [mut locks, mut items] = [Times::new()?, Times::new()?];
    holder.ask()?;
    let (mut fence, end) = (holder.granted()?, Instant::now() + scale.window());
    while Instant::now() < end {
        other.connection.send(&pop)?;
        let (sender, waiter) = (&mut holder.connection, &mut other.connection);
        let (took, _) = timed_after_idle(idle, control, sender, &push, waiter)?;
        items.record(took)?;
        // The length of the list.
        if holder.connection.receive()? != Value::Int(1) {
            return Err("the item was not added".into());
        }

        other.ask()?;
        let (sender, waiter) = (&mut holder.connection, &mut other.connection);
        let (took, reply) = timed_after_idle(idle, control, sender, &holder.release, waiter)?;
        locks.record(took)?;
        holder.released()?;
        let next = fence_of(&reply)?;
        if next <= fence {
            return Err("the fence did not rise".into());
        }
        fence = next;
        swap(&mut holder, &mut other);
    }
    Ok([locks, items])
}

/// After the idle time, from sending a command until the reply that a waiter gets because of it is read.
fn timed_after_idle(
    idle: Duration,
    control: &mut Connection,
    sender: &mut Connection,
    command: &[u8],
    waiter: &mut Connection,
) -> Result<(Duration, Value)> {
    // The server has read the request of the waiter before it replies to this.
    control.call(&["PING"])?;
    if !idle.is_zero() {
        thread::sleep(idle);
    }
    let start = Instant::now();
    sender.send(command)?;
    let reply = waiter.receive()?;
    Ok((start.elapsed(), reply))
}
