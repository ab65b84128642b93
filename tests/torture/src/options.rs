//! The command line.

use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValue;

use crate::scenarios::{SCENARIOS, Scenario};

/// Tests the guarantees of DLOCK under faults.
#[derive(Parser)]
#[command(after_help = "\
exit code: 0 all rules held, 1 a rule was violated, 2 the harness failed

environment:
  DLOCK_SERVER   server program (default: redis-server)
  DLOCK_MODULE   module (default: the one that cargo built beside this program)")]
pub struct Options {
    /// Run this scenario only; may be repeated
    #[arg(long, value_name = "NAME", value_parser = names())]
    scenario: Vec<String>,
    /// Seed of the fault schedule
    #[arg(long, default_value_t = fastrand::u64(..))]
    pub seed: u64,
    /// Number of faults or rounds (default: depends on the scenario)
    #[arg(long)]
    count: Option<u32>,
    /// Run fewer rounds of each scenario
    #[arg(long)]
    short: bool,
    /// Write the full history of each scenario to this directory, as text and as JSON
    #[arg(long, value_name = "DIRECTORY")]
    pub history: Option<PathBuf>,
}

fn names() -> Vec<PossibleValue> {
    let value = |scenario: &Scenario| PossibleValue::new(scenario.name).help(scenario.description);
    SCENARIOS.iter().map(value).collect()
}

impl Options {
    /// In the order of the command line.
    pub fn scenarios(&self) -> Vec<&'static Scenario> {
        let named = |name| SCENARIOS.iter().find(move |scenario| scenario.name == name);
        if self.scenario.is_empty() {
            SCENARIOS.iter().collect()
        } else {
            self.scenario.iter().filter_map(named).collect()
        }
    }

    /// Number of faults or rounds of a scenario.
    pub fn count_of(&self, scenario: &Scenario) -> u32 {
        self.count.unwrap_or(if self.short {
            scenario.short
        } else {
            scenario.count
        })
    }
}
