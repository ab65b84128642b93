//! Many waiters of one process, and dead processes before a living waiter.

use std::mem::take;
use std::time::{Duration, Instant};

use super::process::{Granted, Process};
use crate::error::Result;
use crate::locks::{BATCH, LEASE};
use crate::machine::PinnedCores;
use crate::results::{DLOCK, Results, Round};
use crate::scale::Scale;
use crate::server::Server;
use crate::stats::ms;
use crate::wire::{Connection, command};
use crate::workloads::lock_owner::LockOwner;
use crate::workloads::memory::used_memory;

const WAITERS: usize = 100_000;
/// Of a process that will die. The others answer much sooner than after `LONG_TTL_MS`, on a busy machine too.
const TTL_MS: u64 = 500;
const LONG_TTL_MS: u64 = 60_000;
const DEAD: usize = 100;
const PING_INTERVAL: Duration = Duration::from_millis(1);

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    let waiters = scale.count(WAITERS);
    for round in 0..scale.rounds(3) {
        for (setting, locks) in [
            ("100 000 waiters, one lock", 1),
            ("100 000 waiters, 1 000 locks", waiters.div_ceil(100)),
        ] {
            let row = results.round(setting, DLOCK, round).clients(waiters);
            live_and_die(waiters, locks, row)?;
        }
        results
            .round("100 dead processes", DLOCK, round)
            .add("delay of the next waiter", "ttls", dead()?);
    }
    Ok(())
}

fn dead() -> Result<f64> {
    let mut locks = Locks::hold(1)?;
    let process = |number: usize| {
        let mut process = Process::start(locks.server.port(), &format!("inbox-{number}"), TTL_MS)?;
        process.queue((&key(0), &owner(number)), "id")?;
        Ok(process)
    };
    let processes = (0..DEAD).map(process).collect::<Result<Vec<_>>>()?;
    Ok(locks.die(processes)? / TTL_MS as f64)
}

fn live_and_die(waiters: usize, count: usize, mut row: Round) -> Result<()> {
    let mut locks = Locks::hold(count)?;
    let _pinned = PinnedCores::pin(&locks.server)?;
    let limit = (waiters + 1).to_string();
    locks
        .control
        .call(&["CONFIG", "SET", "dlock.max-waiters-per-lock", &limit])?;
    let mut process = Process::start(locks.server.port(), "inbox", LONG_TTL_MS)?;
    let before = used_memory(&mut locks.control)?;
    row.add("all queued", "ms", locks.queue(&mut process, waiters)?);
    row.add("worst PING, queueing", "ms", take(&mut locks.worst_ping));
    let bytes = (used_memory(&mut locks.control)? - before) / waiters as f64;
    row.add("memory of a waiter", "bytes", bytes);
    let [first, last] = locks.grant(&mut process, waiters)?;
    row.add("hand-over, first quarter", "us", first)
        .add("hand-over, last quarter", "us", last);
    row.add("worst PING, granting", "ms", take(&mut locks.worst_ping));
    process = Process::start(locks.server.port(), "inbox of the dead", TTL_MS)?;
    locks.acquire()?;
    locks.queue(&mut process, waiters)?;
    locks.worst_ping = 0.0;
    locks.die(vec![process])?;
    row.add("worst PING, after the death", "ms", locks.worst_ping);
    Ok(())
}

/// Names of 40 bytes.
fn key(number: usize) -> String {
    format!("lock:{number:035}")
}

fn owner(number: usize) -> String {
    format!("owner-{number:034}")
}

/// Locks of a server, held at first.
struct Locks {
    server: Server,
    control: Connection,
    holders: Vec<Granted>,
    /// In milliseconds.
    worst_ping: f64,
}

impl Locks {
    fn hold(count: usize) -> Result<Self> {
        let server = Server::start()?;
        let holders = (0..count).map(|number| (key(number), "holder".to_owned()));
        let mut locks = Self {
            control: server.connect()?,
            server,
            holders: holders.collect(),
            worst_ping: 0.0,
        };
        locks.acquire()?;
        Ok(locks)
    }

    fn acquire(&mut self) -> Result<()> {
        let mut holders = self.holders.iter();
        holders.try_for_each(|(key, owner)| self.control.call(&["DLOCK.ACQUIRE", key, owner, LEASE]))
    }

    fn ping(&mut self) -> Result<()> {
        let start = Instant::now();
        self.control.call(&["PING"])?;
        self.worst_ping = self.worst_ping.max(ms(start.elapsed()));
        Ok(())
    }

    /// How long it takes, in milliseconds.
    fn queue(&mut self, process: &mut Process, waiters: usize) -> Result<f64> {
        let start = Instant::now();
        for first in (0..waiters).step_by(BATCH) {
            let (numbers, mut bytes) = (first..waiters.min(first + BATCH), Vec::new());
            for number in numbers.clone() {
                let (key, _) = &self.holders[number % self.holders.len()];
                process.encode_acquire((key, &owner(number)), &format!("{number:040}"), &mut bytes);
            }
            process.requests.send(&bytes)?;
            self.ping()?;
            process.expect_done(numbers.len())?;
        }
        Ok(ms(start.elapsed()))
    }

    /// Whoever is granted a lock releases it. Microseconds per hand-over in the first and in the last quarter.
    fn grant(&mut self, process: &mut Process, waiters: usize) -> Result<[f64; 2]> {
        let (mut granted, mut count, mut quarters) = (self.holders.clone(), 0, Vec::new());
        let (start, mut last_ping) = (Instant::now(), Instant::now());
        loop {
            process.requests.send(&releases(&granted))?;
            process.expect_done(granted.len())?;
            if count == waiters {
                let times = [quarters[0], quarters[3] - quarters[2]];
                return Ok(times.map(|ms: f64| ms * 4_000.0 / waiters as f64));
            }
            let reply = process.reader.receive()?;
            granted = process.take(reply)?;
            if granted.first().is_none_or(|(_, first)| *first != owner(count)) {
                return Err(format!("waiter {count} is not the next one that is granted").into());
            }
            count += granted.len();
            while count * 4 >= waiters * (quarters.len() + 1) {
                quarters.push(ms(start.elapsed()));
            }
            if last_ping.elapsed() > PING_INTERVAL {
                self.ping()?;
                last_ping = Instant::now();
            }
        }
    }

    /// Processes with waiters die, then the locks are released. Milliseconds until the next waiter is granted.
    fn die(&mut self, processes: Vec<Process>) -> Result<f64> {
        let mut next = LockOwner::new(&self.server, &key(0), "next", LEASE)?;
        next.ask()?;
        self.control.call(&["PING"])?;
        let requests = &mut self.server.connect()?;
        drop(processes);
        let (start, mut granted) = (Instant::now(), None);
        requests.send(&releases(&self.holders))?;
        while granted.is_none() || self.control.number("dlock", "dlock_waiters")? > 0.0 {
            if granted.is_none() && next.connection.has_reply()? {
                granted = Some(ms(start.elapsed()));
            }
            self.ping()?;
        }
        Ok(granted.unwrap_or(f64::NAN))
    }
}

fn releases(granted: &[Granted]) -> Vec<u8> {
    let release = |(key, owner): &Granted| command(&["DLOCK.RELEASE", key, owner]);
    granted.iter().flat_map(release).collect()
}
