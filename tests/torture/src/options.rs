//! The command line.

use std::path::PathBuf;

use crate::scenarios::{SCENARIOS, Scenario};

/// What `--help` prints.
pub const USAGE: &str = "\
dlock-torture [--scenario NAME]... [--seed N] [--count N] [--short] [--history FOLDER] [--list]

  --scenario NAME   only this one; may be given several times
  --seed N          the seed of the schedule of faults (default: from the clock, and printed)
  --count N         how many faults or rounds, instead of the scenario's own number
  --short           few rounds of each scenario: a first look
  --history FOLDER  write the whole history of each scenario there
  --list            name the scenarios and end

exit code: 0 all held, 1 a rule was broken, 2 the harness itself failed

environment
  DLOCK_SERVER   the server program, default redis-server
  DLOCK_MODULE   the module, default the one that cargo built beside this program";

/// What to do.
pub struct Options {
    /// In this order.
    pub scenarios: Vec<&'static Scenario>,
    /// Of all scenarios.
    pub seed: u64,
    /// Instead of the scenario's own number.
    pub count: Option<u32>,
    /// Few rounds.
    pub short: bool,
    /// Where to write histories.
    pub history: Option<PathBuf>,
    /// What to print instead of doing anything.
    pub text: Option<String>,
}

impl Options {
    /// From the args of the command line; the error says what is wrong with them.
    pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            scenarios: Vec::new(),
            seed: fastrand::u64(..),
            count: None,
            short: false,
            history: None,
            text: None,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
            match arg.as_str() {
                "--scenario" => options.scenarios.push(scenario(&value()?)?),
                "--seed" => options.seed = number(&arg, &value()?)?,
                "--count" => options.count = Some(number(&arg, &value()?)?),
                "--short" => options.short = true,
                "--history" => options.history = Some(value()?.into()),
                "--list" => options.text = Some(list()),
                "--help" | "-h" => options.text = Some(USAGE.into()),
                _ => return Err(format!("unknown option {arg}\n{USAGE}")),
            }
        }
        if options.scenarios.is_empty() {
            options.scenarios = SCENARIOS.iter().collect();
        }
        let short = options.short;
        options.scenarios.retain(|scenario| !short || scenario.short > 0);
        Ok(options)
    }

    /// How many faults or rounds of a scenario.
    pub fn count_of(&self, scenario: &Scenario) -> u32 {
        let own = if self.short {
            scenario.short
        } else {
            scenario.count
        };
        self.count.unwrap_or(own)
    }
}

fn scenario(name: &str) -> Result<&'static Scenario, String> {
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
    found.ok_or_else(|| format!("there is no scenario {name}:\n{}", list()))
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{option} takes a number, not {text:?}"))
}

fn list() -> String {
    let lines = SCENARIOS
        .iter()
        .map(|scenario| format!("{:<22} {}", scenario.name, scenario.description));
    lines.collect::<Vec<_>>().join("\n")
}
