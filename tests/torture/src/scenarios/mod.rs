//! The scenarios, grouped by kind.

mod clock;
mod cluster;
mod crowd;
mod failover;
mod group;
mod inboxes;
mod network;
mod one_server;
mod partition;
mod planned;
mod quorum;
mod restart;
mod sentinel;
mod slot_migration;
mod snapshots;
mod table;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::clients::{ClientPool, Route, Workload};
use crate::history::{History, Recorder};
use crate::verdict::{Rules, Verdict};

pub use table::SCENARIOS;

/// Servers, clients, and the faults injected into them.
pub struct Scenario {
    pub name: &'static str,
    /// One line for `--list`.
    pub description: &'static str,
    /// How many faults, or rounds of them.
    pub count: u32,
    /// The same for `--short`.
    pub short: u32,
    /// The rules that must hold.
    pub rules: Rules,
    body: fn(&mut ScenarioRun) -> Vec<History>,
}

/// The workload for leases of up to this many milliseconds.
type Workloads = fn(u64) -> Workload;

pub struct ScenarioRun {
    /// How many faults, or rounds of them.
    pub count: u32,
    /// Chooses the faults and their times.
    pub rng: Rng,
    /// This program, to start clients as separate processes.
    pub program: PathBuf,
}

impl ScenarioRun {
    /// Splits the run among threads with separate servers.
    fn in_parallel(
        &mut self,
        threads: u32,
        play: impl Fn(&mut Self) -> History + Clone + Send + 'static,
    ) -> Vec<History> {
        let mut running = Vec::new();
        for n in 0..threads {
            let mut part = Self {
                count: (self.count + n) / threads,
                rng: self.rng.fork(),
                program: self.program.clone(),
            };
            let play = play.clone();
            if part.count > 0 {
                running.push(thread::spawn(move || play(&mut part)));
            }
        }
        // Join all threads before any panic propagates, or some would leave servers running.
        let histories: Vec<_> = running.into_iter().map(thread::JoinHandle::join).collect();
        let histories = histories.into_iter();
        histories
            .map(|history| history.expect("the thread has printed its panic"))
            .collect()
    }

    /// Starts clients called `w0`, `w1`, ...
    fn start_clients(
        &mut self,
        count: usize,
        route: &Route,
        recorder: &Recorder,
        workload: &Workload,
    ) -> ClientPool {
        ClientPool::start(count, "w", route, recorder, workload, &mut self.rng)
    }

    /// Sleeps for a random time in this range, in milliseconds.
    fn pause(&mut self, ms: std::ops::RangeInclusive<u64>) {
        thread::sleep(Duration::from_millis(self.rng.u64(ms)));
    }
}

/// Runs a scenario and checks its histories. An error means that the harness itself failed.
pub fn run_scenario(scenario: &Scenario, seed: u64, count: u32, program: &Path) -> Result<Verdict, String> {
    let mut run = ScenarioRun {
        count,
        rng: Rng::with_seed(seed),
        program: program.to_owned(),
    };
    let body = scenario.body;
    let histories = thread::spawn(move || body(&mut run)).join();
    let histories = histories.map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(_) => "a thread of the harness panicked".into(),
    })?;
    Ok(Verdict::of(histories, scenario.rules))
}
