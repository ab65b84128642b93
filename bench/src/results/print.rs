//! Tables for the terminal.

use std::fmt::{self, Write};

use crate::results::stats::number;
use crate::results::table::{Row, Summary};

/// Results of one workload: a table per case, a line per implementation.
pub struct WorkloadTable<'a> {
    pub summary: &'a Summary,
    pub workload: &'a str,
}

/// All figures with a target.
pub struct TargetTable<'a>(pub &'a Summary);

const NAME: usize = 30;

impl fmt::Display for WorkloadTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.summary.rows_of(self.workload);
        for case in unique(rows.iter().map(|row| row.case.as_str())) {
            let rows: Vec<_> = rows.iter().copied().filter(|row| row.case == case).collect();
            let implementations = unique(rows.iter().map(|row| row.implementation.as_str()));
            if !case.is_empty() {
                writeln!(f, "\n   {case}")?;
            }
            match implementations[..] {
                [_] => list(f, &rows)?,
                _ => matrix(f, &rows, &implementations)?,
            }
        }
        for note in self.summary.notes_of(self.workload) {
            writeln!(f, "   note: {note}")?;
        }
        Ok(())
    }
}

/// A line per figure.
fn list(f: &mut fmt::Formatter<'_>, rows: &[&Row]) -> fmt::Result {
    for row in rows {
        writeln!(f, "     {:<52}{}", row.metric, with_range(row))?;
    }
    Ok(())
}

/// A line per implementation, a column per metric.
fn matrix(f: &mut fmt::Formatter<'_>, rows: &[&Row], implementations: &[&str]) -> fmt::Result {
    let metrics = unique(rows.iter().map(|row| row.metric.as_str()));
    let cell = |implementation: &str, metric: &str| {
        let row = rows
            .iter()
            .find(|row| row.implementation == implementation && row.metric == metric);
        row.map_or_else(|| "-".into(), |row| compact(row))
    };
    let heads: Vec<_> = metrics.iter().map(|metric| head(rows, metric)).collect();
    let widths: Vec<_> = metrics
        .iter()
        .zip(&heads)
        .map(|(metric, head)| {
            let cells = implementations
                .iter()
                .map(|implementation| cell(implementation, metric));
            cells
                .map(|cell| cell.chars().count())
                .fold(head.chars().count(), usize::max)
        })
        .collect();
    write!(f, "     {:<NAME$}", "")?;
    for (head, &width) in heads.iter().zip(&widths) {
        write!(f, "  {head:>width$}")?;
    }
    writeln!(f)?;
    for implementation in implementations {
        write!(f, "     {implementation:<NAME$}")?;
        for (metric, &width) in metrics.iter().zip(&widths) {
            write!(f, "  {:>width$}", cell(implementation, metric))?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// The metric with its unit.
fn head(rows: &[&Row], metric: &str) -> String {
    let unit = rows
        .iter()
        .find(|row| row.metric == metric)
        .map_or("", |row| &row.unit);
    if unit.is_empty() {
        metric.into()
    } else {
        format!("{metric}, {unit}")
    }
}

/// `1.31 ±4%`, and `(0.84)`, the ratio of DLOCK to it.
fn compact(row: &Row) -> String {
    let mut text = number(row.median);
    if row.max > row.min && row.median != 0.0 {
        let percent = (row.max - row.min) / 2.0 / row.median * 100.0;
        // Writing to a string cannot fail.
        let _ = match percent {
            ..100.0 => write!(text, " ±{percent:.0}%"),
            _ => write!(text, " ±>99%"),
        };
    }
    if let Some(ratio) = row.ratio {
        let _ = write!(text, " ({})", number(ratio));
    }
    text
}

/// `1.31 (1.27 to 1.35) us`.
fn with_range(row: &Row) -> String {
    let mut text = number(row.median);
    if row.max > row.min {
        let _ = write!(text, " ({} to {})", number(row.min), number(row.max));
    }
    if !row.unit.is_empty() {
        let _ = write!(text, " {}", row.unit);
    }
    text
}

/// In order of first appearance.
fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut unique = Vec::new();
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    unique
}

impl fmt::Display for TargetTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.0.rows().iter().filter_map(result).collect();
        let width = rows
            .iter()
            .map(|(name, ..)| name.chars().count())
            .fold(0, usize::max)
            + 2;
        write!(f, "{:<width$}{:<32}{:<12}result", "figure", "value", "target")?;
        for (name, value, target, result) in rows {
            write!(f, "\n{name:<width$}{value:<32}{target:<12}{result}")?;
        }
        Ok(())
    }
}

/// Name, value, target and whether it is met; `None` without a target.
fn result(row: &Row) -> Option<(String, String, String, &'static str)> {
    let (target, met) = (row.target?, row.met?);
    let metric = row.metric.trim_start();
    let name = match row.case.as_str() {
        "" => format!("{}: {metric}", row.workload),
        case => format!("{}: {metric}, {case}", row.workload),
    };
    let result = if met { "ok" } else { "MISSED" };
    Some((name, with_range(row), target.into(), result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::stats::Stats;
    use crate::results::table::Figure;

    fn summary() -> Summary {
        let mut summary = Summary::default();
        summary.begin("waiting");
        let figure = |values: [f64; 2]| Figure::new("wait p50", Stats::of(values)).ms().case("16 clients");
        summary.add(figure([1.0, 1.2]).at_most(2.0));
        summary.add(figure([10.0, 10.0]).of("other").ratio(Stats::of([0.11])));
        summary.note("etcd is not installed");
        summary
    }

    #[test]
    fn workload_table_with_two_implementations_has_a_line_for_each() {
        let summary = summary();
        let table = WorkloadTable {
            summary: &summary,
            workload: "waiting",
        };
        let lines: Vec<_> = table
            .to_string()
            .lines()
            .map(|line| line.trim().to_owned())
            .collect();
        assert_eq!(lines[1], "16 clients");
        assert_eq!(lines[2], "wait p50, ms");
        assert_eq!(
            lines[3].split_whitespace().collect::<Vec<_>>(),
            ["dlock", "1.10", "±9%"]
        );
        assert_eq!(
            lines[4].split_whitespace().collect::<Vec<_>>(),
            ["other", "10.0", "(0.110)"]
        );
        assert_eq!(lines[5], "note: etcd is not installed");
    }

    #[test]
    fn target_table_lists_only_figures_with_a_target() {
        let text = TargetTable(&summary()).to_string();
        assert_eq!(text.lines().count(), 2);
        assert!(
            text.contains("waiting: wait p50, 16 clients") && text.ends_with("ok"),
            "{text}"
        );
    }
}
