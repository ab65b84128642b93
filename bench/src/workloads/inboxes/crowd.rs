//! Many waiters of one process, and dead processes before a living waiter.

use std::mem::take;
use std::time::{Duration, Instant};

use super::process::{Granted, LEASE_MS, Process};
use crate::cores::PinnedCores;
use crate::error::Result;
use crate::implementations::command::BATCH;
use crate::resp::{Connection, command};
use crate::results::stats::{Stats, ms, stats_of, us};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;
use crate::workloads::lock_owner::LockOwner;
use crate::workloads::memory::used_memory;

/// Of a process that will die. The others answer much sooner than after `LONG_TTL_MS`, on a busy machine too.
const TTL_MS: u64 = 500;
const LONG_TTL_MS: u64 = 60_000;
const DEAD: usize = 100;
/// Shows the noise of the machine.
const IDLE: Duration = Duration::from_secs(2);
const PING_INTERVAL: Duration = Duration::from_millis(1);

/// What a round measures, with its unit and its target.
const FIGURES: [(&str, &str, Option<f64>); 9] = [
    ("memory of a waiter", "bytes", Some(650.0)),
    ("all queued", "ms", Some(2_000.0)),
    ("worst PING, queueing", "ms", Some(10.0)),
    ("hand-over, first quarter", "us", None),
    ("hand-over, last quarter / first", "", Some(1.25)),
    ("worst PING, granting", "ms", Some(10.0)),
    ("death of the process until the next grant", "ms", None),
    ("worst PING after the death", "ms", Some(10.0)),
    ("worst PING, idle server", "ms", None),
];

pub fn measure(bench: &Bench, waiters: usize, summary: &mut Summary) -> Result<()> {
    for locks in [1, waiters / 100] {
        let case = format!("{waiters} waiters, locks: {locks}");
        bench.progress.step("inboxes", &case);
        let rounds = (0..bench.rounds(3, 1)).map(|_| round(waiters, locks));
        let rounds = rounds.collect::<Result<Vec<_>>>()?;
        for (index, (name, unit, limit)) in FIGURES.into_iter().enumerate() {
            let figure = Figure::new(name, stats_of(&rounds, |round| round[index]));
            let figure = figure.unit(unit).case(&case);
            summary.add(match limit {
                Some(limit) => figure.at_most(limit),
                None => figure,
            });
        }
    }
    summary.note(format!(
        "key, owner and request id have 40 bytes each; the ttl of an inbox that ends is {TTL_MS} ms"
    ));
    Ok(())
}

pub fn measure_dead(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let delays = (0..bench.rounds(5, 1)).map(|_| {
        let mut locks = Locks::hold(1)?;
        let process = |number: usize| {
            let mut process = Process::start(&locks.server, &format!("inbox-{number}"), TTL_MS)?;
            process.queue((&key(0), &owner(number)), "id")?;
            Ok(process)
        };
        let processes = (0..DEAD).map(process).collect::<Result<Vec<_>>>()?;
        Ok(locks.die(processes)? / TTL_MS as f64)
    });
    let delays = Stats::of(delays.collect::<Result<Vec<_>>>()?);
    let delay = Figure::new("delay of the next waiter, in ttls", delays);
    summary.add(delay.case(format!("{DEAD} dead processes")).at_most(1.1));
    Ok(())
}

fn round(waiters: usize, count: usize) -> Result<[f64; 9]> {
    let mut locks = Locks::hold(count)?;
    let _pinned = PinnedCores::pin(&locks.server)?;
    let limit = (waiters + 1).to_string();
    let max_waiters = ["CONFIG", "SET", "dlock.max-waiters-per-lock", &limit];
    locks.control.call(&max_waiters)?;
    let mut process = Process::start(&locks.server, "inbox", LONG_TTL_MS)?;
    let before = used_memory(&mut locks.control)?;
    let all_queued = locks.queue(&mut process, waiters)?;
    let queueing = take(&mut locks.worst_ping);
    let bytes = (used_memory(&mut locks.control)? - before) / waiters as f64;
    let [first, last] = locks.grant(&mut process, waiters)?;
    let granting = take(&mut locks.worst_ping);
    process = Process::start(&locks.server, "inbox of the dead", TTL_MS)?;
    locks.acquire()?;
    locks.queue(&mut process, waiters)?;
    locks.worst_ping = 0.0;
    let next = locks.die(vec![process])?;
    let dying = take(&mut locks.worst_ping);
    let start = Instant::now();
    while start.elapsed() < IDLE {
        locks.ping()?;
    }
    let (slower, idle) = (last / first, locks.worst_ping);
    Ok([
        bytes, all_queued, queueing, first, slower, granting, next, dying, idle,
    ])
}

fn key(number: usize) -> String {
    format!("lock:{number:035}")
}

fn owner(number: usize) -> String {
    format!("owner-{number:034}")
}

/// Locks of a server.
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
        let names = self.holders.iter();
        let mut replies =
            names.map(|(key, owner)| self.control.call(&["DLOCK.ACQUIRE", key, owner, "600000"]));
        replies.try_for_each(|reply| reply.map(drop))
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
                return Ok(times.map(|time| time * 4.0 / waiters as f64));
            }
            let reply = process.reader.receive()?;
            granted = process.take(reply)?;
            if granted.first().is_none_or(|(_, first)| *first != owner(count)) {
                return Err(format!("waiter {count} is not the next one that is granted").into());
            }
            count += granted.len();
            if count * 4 >= waiters * (quarters.len() + 1) {
                quarters.push(us(start.elapsed()));
            }
            if last_ping.elapsed() > PING_INTERVAL {
                self.ping()?;
                last_ping = Instant::now();
            }
        }
    }

    /// Processes with waiters die, then the locks are released. Milliseconds until the next waiter is granted.
    fn die(&mut self, processes: Vec<Process>) -> Result<f64> {
        let mut next = LockOwner::new(self.server.connect()?, &key(0), "next", LEASE_MS);
        next.ask()?;
        self.control.call(&["PING"])?;
        let requests = &mut self.server.connect()?;
        drop(processes);
        let (start, mut granted) = (Instant::now(), None);
        requests.send(&releases(&self.holders))?;
        while granted.is_none() || self.control.info_number("dlock", "dlock_waiters")? > 0.0 {
            if granted.is_none() && next.connection.receive_until(Instant::now())?.is_some() {
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
