//! What is expected of DLOCK, by `bench/targets.csv`, and whether results.csv shows it.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::results::{DLOCK, Results, Row};
use crate::stats::{Stats, number};

/// A figure of DLOCK in all cases that are selected, pairs of a setting and a number of clients: itself, or relative to
/// another one of the same case and round.
#[derive(Deserialize)]
pub struct Target {
    pub what: String,
    pub workload: String,
    figure: String,
    /// Empty: DLOCK.
    implementation: String,
    /// Parts of the names of settings, separated by `|`; empty: all.
    settings: String,
    /// Empty: any number of them.
    clients: Option<usize>,
    /// `/` or `-`, then what differs in the other one: `implementation` or `setting`, as in `/ implementation: other`.
    relative_to: String,
    /// `<=` or `>=`, and a number.
    limit: String,
}

/// A line each. Its test reads them all.
pub static TARGETS: LazyLock<Vec<Target>> = LazyLock::new(|| {
    let mut reader = csv::Reader::from_reader(include_str!("../targets.csv").as_bytes());
    reader.deserialize().filter_map(Result::ok).collect()
});

impl Target {
    /// What was measured, the target, and whether it is met in all cases. `None` if it was not measured.
    pub fn outcome(&self, results: &Results) -> Option<[String; 3]> {
        let (sign, limit) = self.limit.split_once(' ')?;
        let limit: f64 = limit.parse().ok()?;
        let is_met = |value| {
            if sign == "<=" {
                value <= limit
            } else {
                value >= limit
            }
        };
        let mut cases = self.cases(results);
        cases.sort_by(|(_, one), (_, other)| one.median.total_cmp(&other.median));
        let ((_, least), (_, most)) = (cases.first()?, cases.last()?);
        let worst = if sign == "<=" {
            cases.last()?
        } else {
            cases.first()?
        };
        let measured = match cases.len() {
            1 => shown(least),
            _ => format!("{} to {}", number(least.median), number(most.median)),
        };
        let missed = cases.iter().filter(|(_, stats)| !is_met(stats.median)).count();
        let verdict = match (missed, cases.len()) {
            (0, _) => "met".into(),
            (_, 1) => "**missed**".into(),
            (_, count) => format!(
                "**missed** in {missed} of {count}: {} {}",
                worst.0,
                shown(&worst.1)
            ),
        };
        Some([
            measured,
            format!("{} {limit}", if sign == "<=" { '≤' } else { '≥' }),
            verdict,
        ])
    }

    /// The figure over all rounds, in each setting with each number of clients.
    fn cases(&self, results: &Results) -> Vec<(String, Stats)> {
        let selected: Vec<&Row> = results.rows.iter().filter(|row| self.selects(row)).collect();
        let mut cases: Vec<(&str, usize)> = selected.iter().map(|row| (&*row.setting, row.clients)).collect();
        cases.sort_unstable();
        cases.dedup();
        let of_case = |(setting, clients): (&str, usize)| {
            let rows = selected
                .iter()
                .filter(|row| row.setting == setting && row.clients == clients);
            let name = if clients > 1 {
                format!("{setting}, {clients} clients")
            } else {
                setting.into()
            };
            Some((name, Stats::of(rows.filter_map(|row| self.value(row, results)))?))
        };
        cases.into_iter().filter_map(of_case).collect()
    }

    fn selects(&self, row: &Row) -> bool {
        row.workload == self.workload
            && row.figure == self.figure
            && row.implementation
                == if self.implementation.is_empty() {
                    DLOCK
                } else {
                    &self.implementation
                }
            && self.clients.is_none_or(|clients| clients == row.clients)
            && self.settings.split('|').any(|part| row.setting.contains(part))
    }

    /// `None` if there is nothing to compare it with.
    fn value(&self, row: &Row, results: &Results) -> Option<f64> {
        if self.relative_to.is_empty() {
            return Some(row.value);
        }
        let (sign, difference) = self.relative_to.split_once(' ')?;
        let mut other = row.clone();
        match difference.split_once(": ")? {
            ("implementation", name) => other.implementation = name.into(),
            ("setting", name) => other.setting = name.into(),
            _ => return None,
        }
        let is_other = |row: &&Row| {
            other
                == Row {
                    value: other.value,
                    unit: other.unit.clone(),
                    ..(*row).clone()
                }
        };
        let other = results.rows.iter().find(is_other)?;
        Some(if sign == "-" {
            row.value - other.value
        } else {
            row.value / other.value
        })
    }
}

/// `1.27 (1.23 to 1.39)`.
fn shown(stats: &Stats) -> String {
    let Stats { median, min, max } = *stats;
    if min < max {
        format!("{} ({} to {})", number(median), number(min), number(max))
    } else {
        number(median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(relative_to: &str, limit: &str) -> Option<[String; 3]> {
        let mut results = Results::default();
        for (round, ours, other) in [(0, 2.0, 1.0), (1, 3.0, 2.0), (2, 3.0, 1.0)] {
            results.round("none", DLOCK, round).add("CPU", "us", ours);
            results.round("none", "other", round).add("CPU", "us", other);
        }
        results.round("always", DLOCK, 0).add("CPU", "us", 5.0);
        let line = format!(
            "what,workload,figure,implementation,settings,clients,relative_to,limit\n,,CPU,,,,{relative_to},{limit}\n"
        );
        let target: Option<csv::Result<Target>> =
            csv::Reader::from_reader(line.as_bytes()).deserialize().next();
        target?.ok()?.outcome(&results)
    }

    #[test]
    fn ratio_is_of_the_same_round_and_missed_above_its_limit() {
        let expected =
            |limit: &str, met: &str| Some(["2.00 (1.50 to 3.00)".into(), limit.into(), met.into()]);
        assert_eq!(outcome("/ implementation: other", "<= 2"), expected("≤ 2", "met"));
        assert_eq!(
            outcome("/ implementation: other", "<= 1.99"),
            expected("≤ 1.99", "**missed**")
        );
        let less = outcome("- implementation: other", ">= 1");
        assert_eq!(
            less,
            Some(["1.00 (1.00 to 2.00)".into(), "≥ 1".into(), "met".into()])
        );
    }

    #[test]
    fn target_missed_in_one_of_two_cases_names_the_worst() {
        let verdict = "**missed** in 1 of 2: always 5.00";
        assert_eq!(
            outcome("", "<= 4"),
            Some(["3.00 to 5.00".into(), "≤ 4".into(), verdict.into()])
        );
        assert_eq!(outcome("/ setting: absent", "<= 4"), None);
    }

    #[test]
    fn every_line_of_the_targets_is_read() {
        assert_eq!(TARGETS.len(), include_str!("../targets.csv").lines().count() - 1);
    }
}
