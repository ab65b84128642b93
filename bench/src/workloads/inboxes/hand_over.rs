//! Hand-overs by inbox and by BLOCK, in turns.

use std::mem::swap;
use std::time::{Duration, Instant};

use super::process::Process;
use crate::error::Result;
use crate::locks::{LEASE, fence_of};
use crate::machine::PinnedCores;
use crate::results::{DLOCK, Results};
use crate::scale::{Scale, turns};
use crate::server::Server;
use crate::stats::Times;
use crate::wire::{command, encode};
use crate::workloads::hand_over::timed_after_idle;
use crate::workloads::lock_owner::LockOwner;

const BLOCK: &str = "BLOCK";
const OWNERS: [&str; 2] = ["alice", "bob"];
const TTL_MS: u64 = 60_000;
const LOCKS: usize = 64;

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    for round in 0..scale.rounds(5) {
        for (name, times) in [DLOCK, BLOCK].into_iter().zip(one_lock(scale.window())?) {
            let mut row = results.round("one lock", name, round);
            row.add("hand-over p50", "us", times.us(50.0))
                .add("hand-over p99", "us", times.us(99.0));
        }
    }
    for (round, index) in turns(scale.rounds(3), 2) {
        let server = Server::start()?;
        let _pinned = PinnedCores::pin(&server)?;
        let (name, many_locks) = [
            (DLOCK, by_inbox as fn(&Server, Duration) -> Result<f64>),
            (BLOCK, by_block),
        ][index];
        let rate = many_locks(&server, scale.window())?;
        results
            .round("64 locks", name, round)
            .add("hand-overs", "/s", rate);
    }
    Ok(())
}

/// Each hand-over by inbox is followed by one by BLOCK.
fn one_lock(window: Duration) -> Result<[Times; 2]> {
    let server = Server::start()?;
    let _pinned = PinnedCores::pin(&server)?;
    let control = &mut server.connect()?;
    let mut process = Process::start(server.port(), "inbox", TTL_MS)?;
    let releases = OWNERS.map(|owner| command(&["DLOCK.RELEASE", "queued", owner]));
    control.call(&["DLOCK.ACQUIRE", "queued", OWNERS[0], LEASE])?;
    let mut holder = LockOwner::new(&server, "blocked", "carol", LEASE)?;
    let mut waiter = LockOwner::new(&server, "blocked", "dave", LEASE)?;
    holder.ask()?;
    holder.granted()?;
    let [mut by_inbox, mut by_block] = [Times::new()?, Times::new()?];
    let end = Instant::now() + window;
    for number in (0_usize..).take_while(|_| Instant::now() < end) {
        process.queue(("queued", OWNERS[(number + 1) % 2]), &number.to_string())?;
        let (sender, reader) = (&mut process.requests, &mut process.reader);
        let (took, reply) = timed_after_idle(Duration::ZERO, control, sender, &releases[number % 2], reader)?;
        by_inbox.record(took)?;
        if process.take(reply)?.len() != 1 {
            return Err("a reply of GRANTS without a grant".into());
        }
        process.expect_done(1)?;

        waiter.ask()?;
        let (sender, reader) = (&mut holder.connection, &mut waiter.connection);
        let (took, reply) = timed_after_idle(Duration::ZERO, control, sender, &holder.release, reader)?;
        by_block.record(took)?;
        fence_of(&reply)?;
        holder.released()?;
        swap(&mut holder, &mut waiter);
    }
    Ok([by_inbox, by_block])
}

/// Hand-overs a second. Two owners take turns at each lock: the one that is granted releases and waits again.
fn by_inbox(server: &Server, window: Duration) -> Result<f64> {
    let mut process = Process::start(server.port(), "inbox", TTL_MS)?;
    let mut granted = Vec::new();
    for lock in 0..LOCKS {
        let (key, [holder, waiter]) = (format!("lock-{lock}"), owners(lock));
        process.requests.call(&["DLOCK.ACQUIRE", &key, &holder, LEASE])?;
        process.queue((&key, &waiter), "first")?;
        granted.push((key, holder));
    }
    let (start, mut hand_overs) = (Instant::now(), 0);
    while start.elapsed() < window {
        let mut bytes = Vec::new();
        for (key, owner) in &granted {
            hand_overs += 1;
            encode(&["DLOCK.RELEASE", key, owner], &mut bytes);
            process.encode_acquire((key, owner), &hand_overs.to_string(), &mut bytes);
        }
        process.requests.send(&bytes)?;
        process.expect_done(2 * granted.len())?;
        let reply = process.reader.receive()?;
        granted = process.take(reply)?;
    }
    Ok(f64::from(hand_overs) / start.elapsed().as_secs_f64())
}

/// The same, each owner on a connection of its own.
fn by_block(server: &Server, window: Duration) -> Result<f64> {
    let mut locks = Vec::new();
    for lock in 0..LOCKS {
        let [holder, waiter] =
            owners(lock).map(|owner| LockOwner::new(server, &format!("lock-{lock}"), &owner, LEASE));
        let (mut holder, mut waiter) = (holder?, waiter?);
        holder.ask()?;
        holder.granted()?;
        waiter.ask()?;
        locks.push((holder, waiter));
    }
    // The server has read all requests before it replies to this.
    server.connect()?.call(&["PING"])?;
    for (holder, _) in &mut locks {
        release_and_ask(holder)?;
    }
    let (start, mut hand_overs) = (Instant::now(), 0);
    while start.elapsed() < window {
        for (holder, waiter) in &mut locks {
            waiter.granted()?;
            holder.released()?;
            release_and_ask(waiter)?;
            swap(holder, waiter);
            hand_overs += 1;
        }
    }
    Ok(f64::from(hand_overs) / start.elapsed().as_secs_f64())
}

fn release_and_ask(owner: &mut LockOwner) -> Result<()> {
    let both = [&owner.release[..], &owner.acquire].concat();
    owner.connection.send(&both)
}

/// Each lock has its own: otherwise they would wait for each other in a circle.
fn owners(lock: usize) -> [String; 2] {
    OWNERS.map(|owner| format!("{owner}-{lock}"))
}
