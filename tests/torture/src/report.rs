//! Output of the harness.

use std::fmt::Write as _;

use crate::checkers::Violation;
use crate::history::{History, Micros, Op};
use crate::scenarios::Scenario;
use crate::verdict::Verdict;

/// Maximum lines of a history excerpt.
const EXCERPT_LINES: usize = 30;

/// Header of the results table.
pub fn header() -> String {
    format!(
        "{:<26} {:>20} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}  {}",
        "scenario",
        "seed",
        "count",
        "requests",
        "grants",
        "faults",
        "refused",
        "survived",
        "expected",
        "verdict"
    )
}

/// A row of the results table.
pub fn row(scenario: &Scenario, seed: u64, count: u32, verdict: &Verdict) -> String {
    format!(
        "{:<26} {:>20} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}  {}",
        scenario.name,
        seed,
        count,
        verdict.ops,
        verdict.grants,
        verdict.faults,
        verdict.refused,
        verdict.survived,
        verdict.expected,
        summary(verdict)
    )
}

fn summary(verdict: &Verdict) -> String {
    if verdict.missed_expected {
        return "BLIND: the expected violation was not detected".into();
    }
    if verdict.violations.is_empty() {
        return if verdict.expected > 0 {
            "ok: expected violation detected"
        } else {
            "ok"
        }
        .into();
    }
    let mut rules: Vec<_> = verdict
        .violations
        .iter()
        .map(|(violation, _)| violation.rule)
        .collect();
    rules.sort_unstable();
    let counts = rules.chunk_by(|a, b| a == b);
    let counts: Vec<String> = counts.map(|rule| format!("{} {}", rule.len(), rule[0])).collect();
    format!("VIOLATED: {}", counts.join(", "))
}

/// The shortest evidence of each violated rule, and how to reproduce it.
pub fn evidence(scenario: &Scenario, seed: u64, count: u32, verdict: &Verdict) -> String {
    let mut text = String::new();
    let mut broken: Vec<&(Violation, usize)> = verdict.violations.iter().collect();
    broken.sort_by_key(|(violation, n)| (violation.rule, span(violation, &verdict.histories[*n])));
    broken.dedup_by_key(|(violation, _)| violation.rule);
    for (violation, n) in broken {
        let _ = writeln!(text, "\n{}: {}", violation.rule, violation.what);
        text += &excerpt(violation, &verdict.histories[*n]);
    }
    let _ = writeln!(
        text,
        "\nto reproduce: dlock-torture --scenario {} --seed {seed} --count {count}",
        scenario.name
    );
    text
}

fn span(violation: &Violation, history: &History) -> Micros {
    let ops = || violation.ops.iter().map(|n| &history.ops[*n]);
    let first = ops().map(|op| op.sent).min().unwrap_or(0);
    ops().map(|op| op.replied).max().unwrap_or(0) - first
}

/// The requests that prove the violation, with the events between them.
fn excerpt(violation: &Violation, history: &History) -> String {
    let ops: Vec<&Op> = violation.ops.iter().map(|n| &history.ops[*n]).collect();
    let Some(start) = ops.iter().map(|op| op.sent).min() else {
        return String::new();
    };
    let end = ops.iter().map(|op| op.replied).max().unwrap_or(start);
    let events = history.events.iter();
    let events = events.filter(|event| (start..=end).contains(&event.at));
    let mut lines: Vec<(Micros, String)> = events
        .map(|event| (event.at, format!("-- {}", event.what)))
        .collect();
    lines.extend(ops.iter().map(|op| (op.sent, line(op, start))));
    lines.sort();
    let shown = lines.iter().take(EXCERPT_LINES);
    shown.fold(String::new(), |text, (at, line)| {
        text + &format!("  {:>12} us  {line}\n", at - start)
    })
}

fn line(op: &Op, start: Micros) -> String {
    format!(
        "port {} term {}  {} {} {}  -> at {} us: {}",
        op.server.port,
        op.server.term,
        op.owner,
        op.key,
        op.request,
        op.replied - start,
        op.reply
    )
}

/// The full history, for a file.
pub fn full(history: &History) -> String {
    let start = history.ops.iter().map(|op| op.sent).min().unwrap_or(0);
    let mut lines: Vec<(Micros, String)> = history.ops.iter().map(|op| (op.sent, line(op, start))).collect();
    let events = history.events.iter();
    lines.extend(events.map(|event| (event.at, format!("-- {}", event.what))));
    lines.sort();
    lines.iter().fold(String::new(), |text, (at, line)| {
        text + &format!("{:>12} us  {line}\n", at.saturating_sub(start))
    })
}
