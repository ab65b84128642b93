//! `tests/README.md` names tests and scenarios that exist; `tests/torture/results.md` has the figures of every scenario.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const MAP: &str = include_str!("../../README.md");
const RESULTS: &str = include_str!("../../torture/results.md");
const SCENARIOS: &str = include_str!("../../torture/src/scenarios/table.rs");

#[test]
fn map_names_existing_tests() {
    let mut named = 0;
    for (file, test) in rows().flat_map(tests_in) {
        named += 1;
        if file == "torture" {
            let scenario = format!("name: \"{test}\"");
            assert!(SCENARIOS.contains(&scenario), "no scenario {test}");
            continue;
        }
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
        let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
        let is_there = match test {
            "all" => ["#[test]", "#[tokio::test", "\nrule "]
                .iter()
                .any(|mark| text.contains(mark)),
            test if file.ends_with(".rules") => {
                text.contains(&format!("\nrule {}\n", test.replace('_', " ")))
            }
            test if file.ends_with(".json") => text.contains(&format!("\"name\": \"{test}\"")),
            test => text.contains(&format!("fn {test}(")),
        };
        assert!(is_there, "{file} has no test {test}");
    }
    assert!(named > 150, "the table was not read: {named} tests");
}

#[test]
fn map_and_results_cover_every_torture_scenario() {
    let named: BTreeSet<_> = rows().flat_map(tests_in).collect();
    let scenarios = SCENARIOS
        .lines()
        .filter_map(|line| line.trim().strip_prefix("name: \""));
    for scenario in scenarios.filter_map(|rest| rest.strip_suffix("\",")) {
        assert!(named.contains(&("torture", scenario)), "{scenario} shows nothing");
        let is_expected = RESULTS.contains(&format!("| `{scenario}` | "));
        assert!(is_expected, "{scenario} has no figures");
    }
}

/// The rows of the table of tests.
fn rows() -> impl Iterator<Item = &'static str> {
    let table = MAP.split("| case | what | tests |").nth(1);
    let lines = table.expect("the table is there").lines().skip(2);
    lines.take_while(|line| line.starts_with('|'))
}

/// The files and the tests of a row: `file`: `test`, `test`; `file`: all.
fn tests_in(row: &'static str) -> Vec<(&'static str, &'static str)> {
    let cells: Vec<_> = row.split('|').collect();
    let groups = cells[3].split(';');
    let groups = groups.map(|group| {
        group
            .split_once(':')
            .unwrap_or_else(|| panic!("no file: {group}"))
    });
    let words = |text: &'static str| text.split(',').map(|word| word.trim().trim_matches('`'));
    groups
        .flat_map(|(file, tests)| words(tests).map(move |test| (file.trim().trim_matches('`'), test)))
        .collect()
}
