//! The scenarios, one file a kind.

mod failover;
mod group;
mod one_server;
mod restart;

use std::thread;
use std::time::Duration;

use fastrand::Rng;

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
    /// A part of the job, for a thread of its own.
    fn part(&mut self, count: u32) -> Self {
        Self {
            count,
            rng: self.rng.fork(),
        }
    }

    /// Lets some time pass, in milliseconds.
    fn pause(&mut self, ms: std::ops::RangeInclusive<u64>) {
        thread::sleep(Duration::from_millis(self.rng.u64(ms)));
    }
}

/// An unplanned failover, or a restart without all data: what was answered may be lost, no lock may have too
/// many holders.
const LOSSY: Rules = Rules {
    lossless: false,
    ..Rules::STRICT
};

/// Known to be unsafe: overlaps must be seen, or the harness would not see them elsewhere either.
const UNSAFE: Rules = Rules {
    overlaps: Overlaps::Expected,
    ..LOSSY
};

/// All of them, the quick ones first.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "clients",
        about: "clients die, stop, are killed, unblocked and paused; the server stops for a while",
        count: 400,
        short: 20,
        rules: Rules::STRICT,
        run: one_server::clients,
    },
    Scenario {
        name: "restart-always",
        about: "kill -9 and restart with appendfsync always: nothing is lost",
        count: 60,
        short: 3,
        rules: Rules::STRICT,
        run: restart::logged_always,
    },
    Scenario {
        name: "restart-grace",
        about: "kill -9 and restart with appendfsync everysec or no, and a grace",
        count: 40,
        short: 2,
        rules: LOSSY,
        run: restart::logged_sometimes_with_grace,
    },
    Scenario {
        name: "restart-nothing-grace",
        about: "kill -9 and restart without any data, with a grace",
        count: 40,
        short: 2,
        rules: LOSSY,
        run: restart::unlogged_with_grace,
    },
    Scenario {
        name: "restart-nothing",
        about: "the same without a grace: overlaps are expected",
        count: 20,
        short: 4,
        rules: UNSAFE,
        run: restart::unlogged,
    },
    Scenario {
        name: "failover-grace",
        about: "the primary is killed with a lost tail, with a grace of the longest lease",
        count: 500,
        short: 3,
        rules: LOSSY,
        run: failover::with_grace,
    },
    Scenario {
        name: "failover",
        about: "the same without a grace: overlaps are expected",
        count: 60,
        short: 6,
        rules: UNSAFE,
        run: failover::without_grace,
    },
];

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
