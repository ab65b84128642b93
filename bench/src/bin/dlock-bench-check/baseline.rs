//! The baseline file, and the comparison with it.

use std::fmt;

use crate::error::Result;

/// Smaller increases may be due to memory layout.
pub const TOLERANCE_PERCENT: u64 = 5;

/// Instructions of each scenario, and what else they depend on: the machine, and the versions of the programs.
#[derive(Debug, PartialEq, Eq)]
pub struct Baseline {
    pub setup: String,
    pub counts: Vec<(String, u64)>,
}

impl Baseline {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (mut setup, mut counts) = (String::new(), Vec::new());
        for line in lines {
            let invalid = || format!("invalid line in the baseline: {line}");
            match line.split_once(" = ").ok_or_else(invalid)? {
                ("setup", value) => setup = value.to_owned(),
                (name, count) => counts.push((name.to_owned(), count.parse().map_err(|_| invalid())?)),
            }
        }
        Ok(Self { setup, counts })
    }

    fn count(&self, name: &str) -> Option<u64> {
        let mut counts = self.counts.iter();
        counts.find(|(own, _)| own == name).map(|(_, count)| *count)
    }

    /// Scenarios that exceed the baseline by more than the tolerance. Scenarios without a baseline do not count.
    pub fn regressions_from(&self, baseline: &Self) -> Vec<&str> {
        let has_regressed = |(name, current): &&(String, u64)| {
            let before = baseline.count(name);
            before.is_some_and(|before| current * 100 > before * (100 + TOLERANCE_PERCENT))
        };
        self.counts
            .iter()
            .filter(has_regressed)
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// A line per scenario.
    pub fn table(&self, baseline: &Self) -> String {
        let mut table = format!("{:<40}{:>10}{:>10}\n", "instructions", "baseline", "current");
        for (name, current) in &self.counts {
            let (before, change) = match baseline.count(name) {
                Some(before) => {
                    let percent = (*current as f64 / before as f64 - 1.0) * 100.0;
                    (before.to_string(), format!("{percent:+.1} %"))
                }
                None => ("-".into(), "new: update the baseline".into()),
            };
            table += &format!("{name:<40}{before:>10}{current:>10}   {change}\n");
        }
        table
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "# Instructions per round, counted by callgrind. Written by `make bench-check ARGS=--update`.\n",
        )?;
        writeln!(f, "setup = {}\n", self.setup)?;
        self.counts
            .iter()
            .try_for_each(|(name, count)| writeln!(f, "{name} = {count}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(counts: &[(&str, u64)]) -> Baseline {
        let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count));
        Baseline {
            setup: "machine, compiler".into(),
            counts: counts.collect(),
        }
    }

    #[test]
    fn baseline_written_and_parsed_is_unchanged() {
        let written = baseline(&[("a", 700), ("b", 8_000)]);
        assert_eq!(Baseline::parse(&written.to_string()).unwrap(), written);
        assert!(Baseline::parse("a = many").is_err());
    }

    #[test]
    fn count_above_the_tolerance_is_a_regression_but_a_new_scenario_is_not() {
        let before = baseline(&[("a", 1_000), ("b", 1_000), ("c", 1_000)]);
        let now = baseline(&[("a", 1_050), ("b", 1_051), ("c", 10), ("new", 1)]);
        assert_eq!(now.regressions_from(&before), ["b"]);
        assert!(now.table(&before).contains("update the baseline"));
    }
}
