//! Tables for the terminal.

use std::fmt::{self, Write};

use crate::results::DLOCK;
use crate::results::stats::number;
use crate::results::table::{Figure, Summary};

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
        let figures = self.summary.figures.iter();
        let figures: Vec<_> = figures
            .filter(|figure| figure.workload == self.workload)
            .collect();
        for case in unique(&figures, |figure| &figure.case) {
            let figures = figures.iter().copied().filter(|figure| figure.case == case);
            let figures: Vec<_> = figures.collect();
            let implementations = unique(&figures, |figure| &figure.implementation);
            if !case.is_empty() {
                writeln!(f, "\n   {case}")?;
            }
            match implementations[..] {
                [_] => list(f, &figures)?,
                _ => matrix(f, &figures, &implementations)?,
            }
        }
        let notes = self.summary.notes.iter();
        for (_, note) in notes.filter(|(workload, _)| *workload == self.workload) {
            writeln!(f, "   note: {note}")?;
        }
        Ok(())
    }
}

/// A line per figure.
fn list(f: &mut fmt::Formatter<'_>, figures: &[&Figure]) -> fmt::Result {
    let mut figures = figures.iter();
    figures.try_for_each(|figure| writeln!(f, "     {:<52}{}", figure.metric, with_range(figure)))
}

/// A line per implementation, a column per metric, as wide as its widest cell.
fn matrix(f: &mut fmt::Formatter<'_>, figures: &[&Figure], implementations: &[&str]) -> fmt::Result {
    let columns = columns(figures, implementations);
    for (line, name) in std::iter::once(&"").chain(implementations).enumerate() {
        write!(f, "     {name:<NAME$}")?;
        for column in &columns {
            let width = column.iter().map(|cell| cell.chars().count()).fold(0, usize::max);
            write!(f, "  {:>width$}", column[line])?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// For each metric, its name and its value of each implementation.
pub fn columns(figures: &[&Figure], implementations: &[&str]) -> Vec<Vec<String>> {
    let columns = unique(figures, |figure| &figure.metric)
        .into_iter()
        .map(|metric| {
            let of_metric = || figures.iter().filter(move |figure| figure.metric == metric);
            let cell = |implementation: &&str| {
                let figure = of_metric().find(|figure| figure.implementation == **implementation);
                figure.map_or_else(|| "-".into(), |figure| compact(figure))
            };
            let head = match of_metric().next().map_or("", |figure| figure.unit) {
                "" => metric.into(),
                unit => format!("{metric}, {unit}"),
            };
            std::iter::once(head)
                .chain(implementations.iter().map(cell))
                .collect()
        });
    columns.collect()
}

/// `1.31 ±4%`, and `(0.84)`, the ratio of DLOCK to it.
fn compact(figure: &Figure) -> String {
    let mut text = number(figure.median);
    if figure.max > figure.min && figure.median != 0.0 {
        let percent = (figure.max - figure.min) / 2.0 / figure.median * 100.0;
        // Writing to a string cannot fail.
        let _ = match percent {
            ..100.0 => write!(text, " ±{percent:.0}%"),
            _ => write!(text, " ±>99%"),
        };
    }
    if let Some(ratio) = figure.ratio {
        let _ = write!(text, " ({})", number(ratio));
    }
    text
}

/// `1.31 (1.27 to 1.35) us`.
fn with_range(figure: &Figure) -> String {
    let mut text = number(figure.median);
    if figure.max > figure.min {
        let _ = write!(text, " ({} to {})", number(figure.min), number(figure.max));
    }
    if !figure.unit.is_empty() {
        let _ = write!(text, " {}", figure.unit);
    }
    text
}

/// In order of first appearance.
pub fn unique<'a>(figures: &[&'a Figure], name: fn(&Figure) -> &String) -> Vec<&'a str> {
    let mut unique: Vec<&str> = Vec::new();
    for figure in figures {
        if !unique.contains(&name(figure).as_str()) {
            unique.push(name(figure));
        }
    }
    unique
}

impl fmt::Display for TargetTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.0.figures.iter().filter_map(result).collect();
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
fn result(figure: &Figure) -> Option<(String, String, &str, &str)> {
    let (target, met) = (figure.target.as_ref()?, figure.met?);
    let name = format!("{}: {}", figure.workload, figure.metric.trim_start());
    let implementation = if figure.implementation == DLOCK {
        ""
    } else {
        &figure.implementation
    };
    let details = [implementation, &figure.case].into_iter();
    let details = details.filter(|detail| !detail.is_empty());
    let name = details.fold(name, |name, detail| format!("{name}, {detail}"));
    Some((
        name,
        with_range(figure),
        target,
        if met { "ok" } else { "MISSED" },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::stats::Stats;

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
        let table = WorkloadTable {
            summary: &summary(),
            workload: "waiting",
        }
        .to_string();
        let lines = table.lines().map(|line| line.split_whitespace().collect());
        let lines: Vec<Vec<_>> = lines.collect();
        let expected = [
            "",
            "16 clients",
            "wait p50, ms",
            "dlock 1.10 ±9%",
            "other 10.0 (0.110)",
            "note: etcd is not installed",
        ];
        assert_eq!(
            lines,
            expected.map(|line| line.split_whitespace().collect::<Vec<_>>())
        );
    }

    #[test]
    fn target_table_lists_only_figures_with_a_target() {
        let text = TargetTable(&summary()).to_string();
        assert_eq!(text.lines().count(), 2);
        let has_name = text.contains("waiting: wait p50, 16 clients");
        assert!(has_name && text.ends_with("ok"), "{text}");
    }
}
