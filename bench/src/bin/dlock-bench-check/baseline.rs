//! The baseline file, and the comparison with it.

use std::fmt;

use crate::error::Result;

/// Smaller increases may be due to memory layout.
pub const TOLERANCE_PERCENT: u64 = 5;

/// What counts depend on other than the code.
const SETUP: [&str; 4] = ["machine", "compiler", "server", "valgrind"];

/// Instructions per round of each scenario, and the setup they were counted with.
#[derive(Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Values of [`SETUP`].
    pub setup: [String; 4],
    pub counts: Vec<(String, u64)>,
}

impl Baseline {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut setup, mut counts) = (<[String; 4]>::default(), Vec::new());
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let (name, value) = line
                .split_once(" = ")
                .ok_or_else(|| format!("invalid line in the baseline, expected `name = value`: {line}"))?;
            if let Some(index) = SETUP.iter().position(|own| *own == name) {
                setup[index] = value.to_owned();
                continue;
            }
            let count = value.parse();
            let count = count.map_err(|error| format!("invalid count in the baseline: {line}: {error}"))?;
            counts.push((name.to_owned(), count));
        }
        Ok(Self { setup, counts })
    }

    /// Describes the first difference of the setup.
    pub fn difference_to(&self, baseline: &Self) -> Option<String> {
        let mut values = SETUP.iter().zip(self.setup.iter().zip(&baseline.setup));
        let (name, (current, before)) = values.find(|(_, (current, before))| current != before)?;
        Some(format!("the {name} is `{current}`, in the baseline `{before}`"))
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
        let regressions = self.counts.iter().filter(has_regressed);
        regressions.map(|(name, _)| name.as_str()).collect()
    }

    /// A line per scenario: name, count in the baseline, current count, change.
    pub fn table(&self, baseline: &Self) -> String {
        let mut table = format!("{:<46}{:>10}{:>10}\n", "instructions", "baseline", "current");
        for (name, current) in &self.counts {
            let (before, change) = match baseline.count(name) {
                Some(before) => {
                    let change = (*current as f64 / before as f64 - 1.0) * 100.0;
                    (before.to_string(), format!("{change:+.1} %"))
                }
                None => ("-".into(), "new: update the baseline".into()),
            };
            table += &format!("{name:<46}{before:>10}{current:>10}   {change}\n");
        }
        table
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Instructions per round, counted by callgrind. Written by `make bench-check ARGS=--update`."
        )?;
        for (name, value) in SETUP.iter().zip(&self.setup) {
            writeln!(f, "{name} = {value}")?;
        }
        writeln!(f)?;
        for (name, count) in &self.counts {
            writeln!(f, "{name} = {count}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(counts: &[(&str, u64)]) -> Baseline {
        let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count));
        Baseline {
            setup: ["m", "c 1", "s v=1", "v"].map(str::to_owned),
            counts: counts.collect(),
        }
    }

    #[test]
    fn baseline_written_and_parsed_is_unchanged() {
        let written = baseline(&[("core: pair", 700), ("server: pair", 8_000)]);
        assert_eq!(Baseline::parse(&written.to_string()).unwrap(), written);
    }

    #[test]
    fn count_above_the_tolerance_is_a_regression() {
        let before = baseline(&[("a", 1_000), ("b", 1_000), ("c", 1_000)]);
        let now = baseline(&[("a", 1_050), ("b", 1_051), ("c", 10)]);
        assert_eq!(now.regressions_from(&before), ["b"]);
    }

    #[test]
    fn scenario_without_baseline_is_listed_but_no_regression() {
        let (before, now) = (baseline(&[]), baseline(&[("new", 1)]));
        assert!(now.regressions_from(&before).is_empty());
        assert!(now.table(&before).contains("update the baseline"));
    }

    #[test]
    fn setup_with_another_version_is_described() {
        let (before, mut now) = (baseline(&[]), baseline(&[]));
        assert_eq!(before.difference_to(&before), None);
        now.setup[2] = "s v=2".into();
        let difference = "the server is `s v=2`, in the baseline `s v=1`";
        assert_eq!(now.difference_to(&before).unwrap(), difference);
    }

    #[test]
    fn baseline_with_invalid_line_is_an_error() {
        for text in ["machine", "core: pair = many"] {
            assert!(Baseline::parse(text).is_err(), "{text}");
        }
    }
}
