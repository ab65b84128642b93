//! The scenarios, one file a kind.

mod one_server;

use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::checkers::Silence;
use crate::history::History;
use crate::verdict::{Overlaps, Rules, Verdict};

/// Servers, clients, and what is done to them.
pub struct Scenario {
    /// For the command line.
    pub name: &'static str,
    /// In a few words.
    pub about: &'static str,
    /// How many faults, or rounds of them.
    pub count: u32,
    /// As many for a first look.
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
}

impl Job {
    /// Lets some time pass, in milliseconds.
    fn pause(&mut self, ms: std::ops::RangeInclusive<u64>) {
        thread::sleep(Duration::from_millis(self.rng.u64(ms)));
    }
}

/// All of them, the quick ones first.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "clients",
    about: "clients die, stop, are killed, unblocked and paused; the server stops for a while",
    count: 400,
    short: 20,
    rules: Rules::STRICT,
    run: one_server::clients,
}];

/// Plays a scenario and lets the checkers read what happened. The error: the harness itself failed.
pub fn play(scenario: &Scenario, seed: u64, count: u32) -> Result<Verdict, String> {
    let mut job = Job {
        count,
        rng: Rng::with_seed(seed),
    };
    let run = scenario.run;
    let histories = thread::spawn(move || run(&mut job)).join();
    let histories = histories.map_err(|panic| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(_) => "a thread of the harness panicked".into(),
    })?;
    Ok(Verdict::of(histories, scenario.rules))
}
