//! The workloads, one per file, and what they share.

mod client;
mod contention;
mod expiry;
mod guard;
mod hand_over;
mod inboxes;
mod lock_owner;
mod memory;
mod pair;
mod quorum;
mod servers;
mod stalls;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::results::Results;

pub struct Workload {
    /// For `--only`, and in results.csv.
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(&Scale, &mut Results) -> Result<()>,
}

/// In the order in which they run. `client` measures what this process grows by, so it is the first.
pub const WORKLOADS: [Workload; 11] = [
    workload("client", "the Rust client", client::measure),
    workload(
        "pair",
        "an uncontended lock: server CPU, latency, bytes logged",
        pair::measure,
    ),
    workload("guard", "a fenced write", guard::measure),
    workload("memory", "memory and snapshots of held locks", memory::measure),
    workload(
        "servers",
        "CPU and memory on each server of the test matrix",
        servers::measure,
    ),
    workload(
        "hand-over",
        "from a release until the next client has the lock",
        hand_over::measure,
    ),
    workload(
        "contention",
        "2 to 256 clients that contend for a lock",
        contention::measure,
    ),
    workload("expiry", "leases that expire, one and a million", expiry::measure),
    workload("inboxes", "waiting without a connection", inboxes::measure),
    workload("stalls", "the worst that one request can cost", stalls::measure),
    workload(
        "quorum",
        "a lock over five servers, one of them stopped or killed",
        quorum::measure,
    ),
];

const fn workload(
    name: &'static str,
    about: &'static str,
    run: fn(&Scale, &mut Results) -> Result<()>,
) -> Workload {
    Workload { name, about, run }
}

/// How much is measured.
pub struct Scale {
    pub size: Size,
    /// The servers of the test matrix, each in its own directory.
    pub servers: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// For publication.
    Full,
    /// To see whether a change matters.
    Quick,
    /// For tests: whether there is a figure at all.
    Smoke,
}

impl Scale {
    pub fn rounds(&self, full: usize) -> usize {
        if self.size == Size::Full { full } else { 1 }
    }

    /// Keys, waiters, repetitions.
    pub fn count(&self, full: usize) -> usize {
        match self.size {
            Size::Full => full,
            Size::Quick => full / 10,
            Size::Smoke => (full / 500).max(10),
        }
    }

    /// How long a rate or a latency is measured: a pause of 250 ms of the machine must not decide it.
    pub fn window(&self) -> Duration {
        match self.size {
            Size::Full => Duration::from_secs(5),
            Size::Quick => Duration::from_millis(400),
            Size::Smoke => Duration::from_millis(60),
        }
    }
}

/// Rounds in which `count` implementations take turns: each round begins with another one. Pairs of round and index.
pub fn turns(rounds: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds).flat_map(move |round| (0..count).map(move |turn| (round, (round + turn) % count)))
}

/// Passes over `count` implementations until the time is over, at least one: indices.
pub fn passes(duration: Duration, count: usize) -> impl Iterator<Item = usize> {
    let end = Instant::now() + duration;
    let passes = (0..).take_while(move |pass| *pass == 0 || Instant::now() < end);
    passes.flat_map(move |pass| (0..count).map(move |turn| (pass + turn) % count))
}
