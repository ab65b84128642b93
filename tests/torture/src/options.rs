//! The command line.

use std::path::PathBuf;

use crate::scenarios::{SCENARIOS, Scenario};

/// Output of `--help`.
pub const USAGE: &str = "\
dlock-torture [--scenario NAME]... [--seed N] [--count N] [--short] [--history DIRECTORY] [--list]

  --scenario NAME   run this scenario only; may be repeated
  --seed N          seed of the fault schedule (default: random, printed)
  --count N         number of faults or rounds (default: depends on the scenario)
  --short           run fewer rounds of each scenario
  --history DIRECTORY  write the full history of each scenario to this directory
  --list            list the scenarios and exit

exit code: 0 all rules held, 1 a rule was violated, 2 the harness failed

environment
  DLOCK_SERVER   server program (default: redis-server)
  DLOCK_MODULE   module (default: the one that cargo built beside this program)";

/// Parsed options.
pub struct Options {
    /// Scenarios to run, in order.
    pub scenarios: Vec<&'static Scenario>,
    /// Seed of all scenarios.
    pub seed: u64,
    /// Overrides the count of the scenarios.
    pub count: Option<u32>,
    /// Use the short count.
    pub short: bool,
    /// Directory for histories.
    pub history: Option<PathBuf>,
    /// Text to print instead of running anything.
    pub text: Option<String>,
}

impl Options {
    /// Parses the command line.
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

    /// Number of faults or rounds of a scenario.
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
    found.ok_or_else(|| format!("unknown scenario {name}; the scenarios are:\n{}", list()))
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{option} takes a number, not {text:?}"))
}

fn list() -> String {
    let lines = SCENARIOS
        .iter()
        .map(|scenario| format!("{:<26} {}", scenario.name, scenario.description));
    lines.collect::<Vec<_>>().join("\n")
}
