//! Output of the harness.

use std::fmt::Write as _;

use crate::checkers::Violation;
use crate::history::{History, Micros, Op};
use crate::scenarios::Scenario;
use crate::verdict::Verdict;

const EXCERPT_LINES: usize = 30;

pub fn header() -> String {
    let names = [
        "seed", "count", "requests", "grants", "faults", "refused", "survived", "in runs", "expected",
    ];
    columns("scenario", names.map(str::to_owned), "verdict")
}

pub fn row(scenario: &Scenario, seed: u64, count: u32, verdict: &Verdict) -> String {
    let Verdict {
        ops,
        grants,
        faults,
        refused,
        survived,
        specified,
        expected,
        ..
    } = verdict;
    let numbers = [ops, grants, faults, refused, survived, specified, expected].map(usize::to_string);
    let [ops, grants, faults, refused, survived, specified, expected] = numbers;
    let numbers = [
        seed.to_string(),
        count.to_string(),
        ops,
        grants,
        faults,
        refused,
        survived,
        specified,
        expected,
    ];
    columns(scenario.name, numbers, &summary(verdict))
}

fn columns(name: &str, [seed, numbers @ ..]: [String; 9], verdict: &str) -> String {
    let numbers: String = numbers.iter().map(|number| format!(" {number:>8}")).collect();
    format!("{name:<26} {seed:>20}{numbers}  {verdict}")
}

fn summary(verdict: &Verdict) -> String {
    if verdict.missed_expected {
        return "BLIND: the expected violation was not detected".into();
    }
    if verdict.violations.is_empty() {
        let expected = if verdict.expected > 0 {
            ": expected violation detected"
        } else {
            ""
        };
        let undecided = match verdict.undecided {
            0 => String::new(),
            locks => format!(", undecided whether {locks} locks are in a run"),
        };
        return format!("ok{expected}{undecided}");
    }
    let rules = verdict.violations.iter().map(|(violation, _)| violation.rule);
    let mut rules: Vec<_> = rules.collect();
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
