//! Fills in the tables of pages, so that their figures are those of results.csv.
//!
//! A table is between one of these lines and `<!-- end -->`:
//!
//! - `<!-- targets -->`: all targets, met or missed
//! - `<!-- rivals -->`: how long workers wait with each of `bench/rivals.csv`, and with DLOCK in the same language
//! - `<!-- figures: WORKLOAD -->` or `<!-- figures: WORKLOAD: SETTING -->`: a line per implementation, a column per figure
//! - `<!-- environment -->`: where and when each workload was measured

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::error::Result;
use crate::results::{DLOCK, Results, Row};
use crate::stats::{Stats, number};
use crate::targets::TARGETS;

const END: &str = "<!-- end -->";

/// All pages that may have tables, below the root of the repository.
pub const PAGES: [&str; 3] = ["README.md", "bench/README.md", "docs/bench/README.md"];

/// Rewrites the pages.
pub fn fill_in(root: &Path, results: &Results) -> Result<()> {
    for page in PAGES {
        let file = root.join(page);
        let text =
            filled(&fs::read_to_string(&file)?, results).map_err(|error| format!("{page}: {error}"))?;
        fs::write(file, text)?;
    }
    Ok(())
}

fn filled(page: &str, results: &Results) -> Result<String> {
    let (mut text, mut is_replaced) = (String::new(), false);
    for line in page.lines() {
        is_replaced &= line != END;
        if is_replaced {
            continue;
        }
        text += line;
        text += "\n";
        if let Some(table) = table(line, results) {
            text += &format!("\n{}\n", table?);
            is_replaced = true;
        }
    }
    Ok(text)
}

/// The table that belongs after this line, if it is a marker. An error if nothing was measured for it.
fn table(line: &str, results: &Results) -> Option<Result<String>> {
    let marker = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    let table = match marker {
        "targets" => Ok(targets(results)),
        "rivals" => rivals(results),
        "environment" => Ok(environment(results)),
        _ => {
            let (workload, setting) = match marker.strip_prefix("figures: ")?.split_once(": ") {
                Some((workload, setting)) => (workload, Some(setting)),
                None => (marker.strip_prefix("figures: ")?, None),
            };
            let selected =
                |row: &&Row| row.workload == workload && setting.is_none_or(|name| row.setting == name);
            match results.rows.iter().filter(selected).collect::<Vec<_>>() {
                rows if rows.is_empty() => Err(format!("nothing was measured for `{marker}`").into()),
                rows => Ok(figures(&rows)),
            }
        }
    };
    Some(table)
}

pub fn targets(results: &Results) -> String {
    let mut table = "| figure | measured | target | |\n|---|---:|---:|---|\n".to_owned();
    for target in TARGETS.iter() {
        if let Some([measured, limit, verdict]) = target.outcome(results) {
            table += &format!("| {} | {measured} | {limit} | {verdict} |\n", target.what);
        }
    }
    table
}

/// A system to acquire locks with, as results.csv names it and as the first page does.
#[derive(Deserialize)]
struct Rival {
    /// Empty: DLOCK, with the range of all its clients in this table.
    implementation: String,
    /// DLOCK's client for the same language.
    ours: String,
    name: String,
    order: String,
    failover: String,
    tells: String,
}

/// How long workers wait with each of them and with DLOCK in the same language, and what else differs.
fn rivals(results: &Results) -> Result<String> {
    const SETTING: &str = "8 workers, 1 ms";
    let median = |implementation: &str, figure: &str| {
        let rows = results.rows.iter().filter(|row| {
            (&*row.workload, &*row.setting) == ("peers", SETTING)
                && (&*row.implementation, &*row.figure) == (implementation, figure)
        });
        let stats = Stats::of(rows.map(|row| row.value));
        stats
            .map(|stats| stats.median)
            .ok_or_else(|| format!("nothing was measured for {implementation}"))
    };
    let mut reader = csv::Reader::from_reader(include_str!("../rivals.csv").as_bytes());
    let rivals: Vec<Rival> = reader.deserialize().collect::<csv::Result<_>>()?;
    let ours = |figure: &str, unit: &str| -> Result<String> {
        let beside = rivals.iter().filter(|rival| !rival.ours.is_empty());
        let medians = beside.map(|rival| median(&rival.ours, figure));
        let range = Stats::of(medians.collect::<std::result::Result<Vec<_>, _>>()?);
        let Stats { min, max, .. } = range.ok_or("rivals.csv is empty")?;
        Ok(format!("{min:.0} to {max:.0}{unit}"))
    };
    let cell = |rival: &Rival, figure: &str, unit: &str| -> Result<String> {
        if rival.implementation.is_empty() {
            return ours(figure, unit);
        }
        let theirs = median(&rival.implementation, figure)?;
        Ok(format!(
            "{theirs:.0}{unit}; DLOCK {:.0}",
            median(&rival.ours, figure)?
        ))
    };
    let mut table =
        "| beside DLOCK in the same language | longest wait | acquisitions a second | waiters are served | \
                     after a failover | tells the holder of a loss |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for rival in &rivals {
        table += &format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            rival.name,
            cell(rival, "wait max", " ms")?,
            cell(rival, "acquisitions", "")?,
            rival.order,
            rival.failover,
            rival.tells
        );
    }
    Ok(table)
}

/// A line per environment, which most workloads share, with what differs between them.
fn environment(results: &Results) -> String {
    let mut lines: Vec<(&str, Vec<String>)> = Vec::new();
    for (workload, text) in &results.environments {
        let (shared, own) = text.split_once("; ").unwrap_or((text, ""));
        let item = format!("{workload} ({own})");
        match lines.iter_mut().find(|(other, _)| *other == shared) {
            Some((_, items)) => items.push(item),
            None => lines.push((shared, vec![item])),
        }
    }
    let row = |(shared, items): (&str, Vec<String>)| format!("| {shared} | {} |\n", items.join(", "));
    "| measured | workloads, and what the hypervisor withheld of a core |\n|---|---|\n".to_owned()
        + &lines.into_iter().map(row).collect::<String>()
}

/// A line per setting, implementation and number of clients, as far as they differ.
fn figures(rows: &[&Row]) -> String {
    let settings = unique(rows, |row| row.setting.clone());
    let clients = unique(rows, |row| row.clients);
    let columns = unique(rows, |row| (row.figure.clone(), row.unit.clone()));
    let mut table = "| ".to_owned();
    for (figure, unit) in &columns {
        let unit = if unit == "us" { "µs" } else { unit };
        let comma = if unit.is_empty() { "" } else { ", " };
        table += &format!("| {figure}{comma}{unit} ");
    }
    table += &format!("|\n|---{}|\n", "|---:".repeat(columns.len()));
    for line in unique(rows, |row| {
        (row.setting.clone(), row.clients, row.implementation.clone())
    }) {
        let mut name = vec![line.2.clone()];
        if settings.len() > 1 {
            name.insert(0, line.0.clone());
        }
        if clients.len() > 1 {
            name.push(format!("{} client{}", line.1, if line.1 == 1 { "" } else { "s" }));
        }
        table += &format!("| {} ", name.join(", "));
        for (figure, _) in &columns {
            table += &format!("| {} ", cell(rows, &line, figure));
        }
        table += "|\n";
    }
    table
}

/// `1.31 ±4%`, and `(0.84)`: that of DLOCK in the same case, divided by it.
fn cell(rows: &[&Row], (setting, clients, implementation): &(String, usize, String), figure: &str) -> String {
    let of = |implementation: &str| {
        let rows = rows.iter().filter(|row| {
            row.setting == *setting && row.clients == *clients && row.implementation == implementation
        });
        Stats::of(rows.filter(|row| row.figure == figure).map(|row| row.value))
    };
    let Some(Stats { median, min, max }) = of(implementation) else {
        return "-".into();
    };
    let mut text = number(median);
    if min < max && median != 0.0 {
        text += &format!(" ±{:.0}%", ((max - min) / 2.0 / median * 100.0).min(999.0));
    }
    match of(DLOCK) {
        Some(ours) if implementation != DLOCK && median > 0.0 => {
            text + &format!(" ({})", number(ours.median / median))
        }
        _ => text,
    }
}

/// In order of first appearance.
fn unique<T: PartialEq>(rows: &[&Row], of: impl Fn(&Row) -> T) -> Vec<T> {
    let mut unique = Vec::new();
    for value in rows.iter().map(|row| of(row)) {
        if !unique.contains(&value) {
            unique.push(value);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        let mut results = Results::default();
        for (round, value) in [(0, 1.0), (1, 3.0)] {
            results.round("none", DLOCK, round).add("wait", "ms", value);
        }
        results
            .round("none", "other", 0)
            .clients(1)
            .add("wait", "ms", 4.0)
            .add("fairness", "", 1.0);
        results
            .rows
            .iter_mut()
            .for_each(|row| row.workload = "waits".into());
        results
    }

    #[test]
    fn page_with_a_table_gets_the_figures_of_the_results() -> Result<()> {
        let page = "before\n<!-- figures: waits: none -->\nold\n<!-- end -->\nafter\n";
        let expected = "before\n<!-- figures: waits: none -->\n\n| | wait, ms | fairness |\n|---|---:|---:|\n\
                        | dlock | 2.00 ±50% | - |\n| other | 4.00 (0.500) | 1.00 |\n\n<!-- end -->\nafter\n";
        assert_eq!(filled(page, &results())?, expected);
        assert_eq!(filled(expected, &results())?, expected);
        assert!(filled("<!-- figures: waits: never -->\n<!-- end -->\n", &results()).is_err());
        Ok(())
    }

    #[test]
    fn pages_show_the_figures_of_results_csv() -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let results = Results::read(&root.join("docs/bench/results.csv"))?;
        for page in PAGES {
            let text = fs::read_to_string(root.join(page))?;
            assert!(
                text == filled(&text, &results)?,
                "{page}: run `make bench ARGS=--render`"
            );
        }
        Ok(())
    }
}
