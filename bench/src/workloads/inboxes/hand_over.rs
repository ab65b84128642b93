//! Hand-overs by inbox and by BLOCK, in turns.

use std::time::{Duration, Instant};

use super::process::{LEASE_MS, Process};
use crate::cores::PinnedCores;
use crate::error::Result;
use crate::implementations::dlock::fence_of;
use crate::resp::{command, encode};
use crate::results::stats::{percentile, us};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::comparison::Comparison;
use crate::workloads::hand_over::timed_after_idle;
use crate::workloads::lock_owner::LockOwner;

const NAMES: [&str; 2] = ["QUEUE and GRANTS", "BLOCK"];
const OWNERS: [&str; 2] = ["alice", "bob"];
const TTL_MS: u64 = 60_000;
const LOCKS: usize = 64;
const WINDOW: Duration = Duration::from_secs(1);

pub fn measure(bench: &Bench, hand_overs: usize, summary: &mut Summary) -> Result<()> {
    let count = bench.rounds(9, 1);
    bench.progress.step("inboxes", "hand-over");
    let rounds = (0..count).map(|_| one_lock(hand_overs));
    let times = Comparison {
        names: NAMES.into(),
        rounds: rounds.collect::<Result<_>>()?,
    };
    for (metric, percent, limit) in [("p50", 50.0, 1.05), ("p99", 99.0, 1.2)] {
        let of = |times: &Vec<f64>| percentile(times, percent);
        times.add(summary, "one lock", metric, "us", of);
        let ratio = Figure::new(format!("hand-over, {metric} / BLOCK"), times.ratio(1, of));
        summary.add(ratio.case("one lock: targets").at_most(limit));
    }
    let window = if bench.quick { WINDOW / 5 } else { WINDOW };
    let rates = Comparison::in_turns(NAMES.into(), count, |_, index| {
        let server = Server::start()?;
        let _pinned = PinnedCores::pin(&server)?;
        [many_locks_by_inbox, many_locks_by_block][index](&server, window)
    })?;
    let case = format!("{LOCKS} locks");
    rates.add(summary, &case, "hand-overs", "/s", |rate| *rate);
    let ratio = Figure::new("hand-overs / BLOCK", rates.ratio(1, |rate| *rate));
    summary.add(ratio.case(format!("{case}: targets")).at_least(1.0));
    Ok(())
}

/// Sorted times in microseconds. Each hand-over by inbox is followed by one by BLOCK.
fn one_lock(hand_overs: usize) -> Result<Vec<Vec<f64>>> {
    let server = Server::start()?;
    let _pinned = PinnedCores::pin(&server)?;
    let control = &mut server.connect()?;
    let mut process = Process::start(&server, "inbox", TTL_MS)?;
    let releases = OWNERS.map(|owner| command(&["DLOCK.RELEASE", "queued", owner]));
    control.call(&["DLOCK.ACQUIRE", "queued", OWNERS[0], "600000"])?;
    let mut holder = LockOwner::new(server.connect()?, "blocked", "carol", LEASE_MS);
    let mut waiter = LockOwner::new(server.connect()?, "blocked", "dave", LEASE_MS);
    holder.ask()?;
    holder.granted()?;
    let mut times = vec![Vec::new(), Vec::new()];
    for (number, release) in (0..hand_overs).zip(releases.iter().cycle()) {
        process.queue(("queued", OWNERS[(number + 1) % 2]), &number.to_string())?;
        let (sender, reader) = (&mut process.requests, Some(&mut process.reader));
        let (took, reply) = timed_after_idle(Duration::ZERO, control, sender, release, reader)?;
        times[0].push(us(took));
        if process.take(reply)?.len() != 1 {
            return Err("a reply of GRANTS without a grant".into());
        }
        process.expect_done(1)?;

        waiter.ask()?;
        let (sender, reader) = (&mut holder.connection, Some(&mut waiter.connection));
        let (took, reply) = timed_after_idle(Duration::ZERO, control, sender, &holder.release, reader)?;
        times[1].push(us(took));
        fence_of(&reply)?;
        holder.connection.receive()?;
        std::mem::swap(&mut holder, &mut waiter);
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    Ok(times)
}

/// Hand-overs a second. Two owners take turns at each lock: the one that is granted releases and waits again.
fn many_locks_by_inbox(server: &Server, window: Duration) -> Result<f64> {
    let mut process = Process::start(server, "inbox", TTL_MS)?;
    let mut granted = Vec::new();
    for lock in 0..LOCKS {
        let (key, [holder, waiter]) = (format!("lock-{lock}"), owners(lock));
        process
            .requests
            .call(&["DLOCK.ACQUIRE", &key, &holder, "600000"])?;
        process.queue((&key, &waiter), "first")?;
        granted.push((key, holder));
    }
    let (start, mut hand_overs) = (Instant::now(), 0);
    while start.elapsed() < window {
        let mut bytes = Vec::new();
        for (key, owner) in &granted {
            hand_overs += 1;
            encode(["DLOCK.RELEASE", key, owner].into_iter(), &mut bytes);
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
fn many_locks_by_block(server: &Server, window: Duration) -> Result<f64> {
    let mut locks = Vec::new();
    for lock in 0..LOCKS {
        let key = format!("lock-{lock}");
        let open = |owner: String| Ok(LockOwner::new(server.connect()?, &key, &owner, LEASE_MS));
        let mut owners = owners(lock).into_iter().map(open).collect::<Result<Vec<_>>>()?;
        owners[0].ask()?;
        owners[0].granted()?;
        owners[1].ask()?;
        locks.push(owners);
    }
    // The server has read all requests before it replies to this.
    server.connect()?.call(&["PING"])?;
    let (start, mut hand_overs) = (Instant::now(), 0);
    for owners in &mut locks {
        owners[0].release_and_ask()?;
    }
    while start.elapsed() < window {
        for owners in &mut locks {
            owners[1].granted()?;
            owners[0].connection.receive()?;
            owners[1].release_and_ask()?;
            owners.swap(0, 1);
            hand_overs += 1;
        }
    }
    Ok(f64::from(hand_overs) / start.elapsed().as_secs_f64())
}

/// Each lock has its own: otherwise they would wait for each other in a circle.
fn owners(lock: usize) -> [String; 2] {
    OWNERS.map(|owner| format!("{owner}-{lock}"))
}
