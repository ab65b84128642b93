//! Counts, as they are kept in a file, and how they compare.

use std::fmt;

use crate::Result;

/// So much more may be due to where things lie in memory.
pub const TOLERANCE_PERCENT: u64 = 5;

/// Instructions a round of each scenario, and what they were counted with.
#[derive(Debug, PartialEq, Eq)]
pub struct Baseline {
    pub setup: Setup,
    pub counts: Vec<(String, u64)>,
}

/// What counts depend on beside the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    pub machine: String,
    pub compiler: String,
    pub server: String,
    pub valgrind: String,
}

impl Setup {
    fn rows(&self) -> [(&'static str, &String); 4] {
        [
            ("machine", &self.machine),
            ("compiler", &self.compiler),
            ("server", &self.server),
            ("valgrind", &self.valgrind),
        ]
    }

    /// What differs first, in words.
    pub fn difference_to(&self, baseline: &Self) -> Option<String> {
        let rows = self.rows().into_iter().zip(baseline.rows());
        let mut different = rows.filter(|((_, now), (_, before))| now != before);
        different
            .next()
            .map(|((what, now), (_, before))| format!("the {what} is `{now}`, the baseline's `{before}`"))
    }
}

impl Baseline {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Result<Self> {
        let mut setup = Setup::default();
        let mut counts = Vec::new();
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let (name, value) = line
                .split_once(" = ")
                .ok_or_else(|| format!("the baseline has a line without ` = `: {line}"))?;
            let value = value.to_owned();
            match name {
                "machine" => setup.machine = value,
                "compiler" => setup.compiler = value,
                "server" => setup.server = value,
                "valgrind" => setup.valgrind = value,
                _ => counts.push((name.to_owned(), value.parse()?)),
            }
        }
        Ok(Self { setup, counts })
    }

    fn of(&self, name: &str) -> Option<u64> {
        let mut counts = self.counts.iter();
        counts.find(|(own, _)| own == name).map(|(_, count)| *count)
    }

    /// The scenarios that have become dearer than they may. One that the baseline does not know has not.
    pub fn dearer_than(&self, baseline: &Self) -> Vec<&str> {
        let is_dearer = |name: &str, now: u64| {
            baseline
                .of(name)
                .is_some_and(|before| now * 100 > before * (100 + TOLERANCE_PERCENT))
        };
        self.counts
            .iter()
            .filter(|(name, now)| is_dearer(name, *now))
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// A table: each scenario, its count in the baseline, its count now.
    pub fn beside(&self, baseline: &Self) -> String {
        let mut table = format!("{:<46}{:>10}{:>10}\n", "instructions", "baseline", "now");
        for (name, now) in &self.counts {
            let (before, change) = match baseline.of(name) {
                Some(before) => {
                    let change = (*now as f64 / before as f64 - 1.0) * 100.0;
                    (before.to_string(), format!("{change:+.1} %"))
                }
                None => ("-".into(), "new: update the baseline".into()),
            };
            table += &format!("{name:<46}{before:>10}{now:>10}   {change}\n");
        }
        table
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# Instructions a round, counted by callgrind. Written by `make bench-check ARGS=--update`."
        )?;
        for (what, value) in self.setup.rows() {
            writeln!(f, "{what} = {value}")?;
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
        Baseline {
            setup: Setup {
                machine: "m".into(),
                compiler: "c 1".into(),
                server: "s v=1".into(),
                valgrind: "v".into(),
            },
            counts: counts
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect(),
        }
    }

    #[test]
    fn a_baseline_comes_back_as_it_was_written() {
        let written = baseline(&[("core: pair", 700), ("server: pair", 8_000)]);
        assert_eq!(Baseline::parse(&written.to_string()).unwrap(), written);
    }

    #[test]
    fn five_percent_more_is_let_through_and_anything_beyond_is_not() {
        let before = baseline(&[("a", 1_000), ("b", 1_000), ("c", 1_000)]);
        let now = baseline(&[("a", 1_050), ("b", 1_051), ("c", 10)]);
        assert_eq!(now.dearer_than(&before), ["b"]);
    }

    #[test]
    fn what_the_baseline_does_not_know_is_shown_but_not_dearer() {
        let (before, now) = (baseline(&[]), baseline(&[("new", 1)]));
        assert!(now.dearer_than(&before).is_empty());
        assert!(now.beside(&before).contains("update the baseline"));
    }

    #[test]
    fn another_version_of_anything_is_named() {
        let before = baseline(&[]).setup;
        assert_eq!(before.difference_to(&before), None);
        let now = Setup {
            server: "s v=2".into(),
            ..before.clone()
        };
        assert_eq!(
            now.difference_to(&before).unwrap(),
            "the server is `s v=2`, the baseline's `s v=1`"
        );
    }

    #[test]
    fn a_broken_line_of_the_baseline_is_told() {
        for text in ["machine", "core: pair = many"] {
            assert!(Baseline::parse(text).is_err(), "{text}");
        }
    }
}
