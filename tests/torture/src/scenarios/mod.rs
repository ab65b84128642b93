//! The scenarios, one file a kind.

mod clock;
mod cluster;
mod effect;
mod eviction;
mod failover;
mod group;
mod log_cut;
mod network;
mod one_server;
mod partition;
mod planned;
mod restart;
mod sentinel;
mod table;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::history::History;
use crate::verdict::{Rules, Verdict};

pub use table::SCENARIOS;

/// Servers, clients, and what is done to them.
pub struct Scenario {
    /// For the command line.
    pub name: &'static str,
    /// In a few words.
    pub about: &'static str,
    /// How many faults, or rounds of them.
    pub count: u32,
    /// As many for a first look; 0: it takes more to see anything.
    pub short: u32,
    /// What must hold.
    pub rules: Rules,
    /// Plays it.
    run: fn(&mut Job) -> Vec<History>,
}

/// One play of a scenario.
pub struct Job {
    /// How many faults, or rounds of them.
    pub count: u32,
    /// Chooses the faults and their moments.
    pub rng: Rng,
    /// This program, for clients that are processes of their own.
    pub program: PathBuf,
}

impl Job {
    /// Divides the job among threads, each with servers of its own.
    fn side_by_side(
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
        // All of them first: a thread that goes on after a panic of another one would leave its servers behind.
        let histories: Vec<_> = running.into_iter().map(thread::JoinHandle::join).collect();
        let histories = histories.into_iter();
        histories
            .map(|history| history.expect("the thread has printed why it panicked"))
            .collect()
    }

    /// Lets some time pass, in milliseconds.
    fn pause(&mut self, ms: std::ops::RangeInclusive<u64>) {
        thread::sleep(Duration::from_millis(self.rng.u64(ms)));
    }
}

/// Plays a scenario and lets the checkers read what happened. The error: the harness itself failed.
pub fn play(scenario: &Scenario, seed: u64, count: u32, program: &Path) -> Result<Verdict, String> {
    let mut job = Job {
        count,
        rng: Rng::with_seed(seed),
        program: program.to_owned(),
    };
    let run = scenario.run;
    let histories = thread::spawn(move || run(&mut job)).join();
    let histories = histories.map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(_) => "a thread of the harness panicked".into(),
    })?;
    Ok(Verdict::of(histories, scenario.rules))
}
