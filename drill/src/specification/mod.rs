//! Histories as runs of the specification in `spec/`: some order of their requests, each between its sending and its
//! reply, in which the rules of `spec/lock.qnt` give all the replies, and those of `spec/guard.qnt` the writes.
//!
//! A history without such a run proves a mistake. Without a reply, a request may have taken effect, or not.

mod call;
pub mod lock;
mod search;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::checkers::{Rule, Violation};
use crate::history::History;
use call::Call;
pub use search::Found;
use search::search;

/// How much of a history is to be a run of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it: every request is recorded, and the servers lose nothing.
    Whole,
    /// Until a server is replaced, because that may lose something.
    FirstTerm,
    /// None: other requests change the locks too, or other rules apply, as those of a grace period or of a quorum.
    None,
}

/// What was found for the history of a lock.
#[derive(Debug)]
pub struct Checked<'a> {
    pub lock: &'a str,
    /// The number of its requests.
    pub requests: usize,
    pub found: Found,
}

/// Checks the history of each lock.
pub fn check(history: &History, part: Part) -> Vec<Checked<'_>> {
    let mut locks: BTreeMap<&str, Vec<Call<'_>>> = BTreeMap::new();
    for (n, op) in history.ops.iter().enumerate() {
        locks.entry(&op.key).or_default().extend(Call::of(n, op));
    }
    match part {
        Part::Whole => {}
        Part::FirstTerm => locks.values_mut().for_each(keep_first_term),
        Part::None => locks.clear(),
    }
    let fences = fences(history);
    let checked = locks.into_iter().map(|(lock, calls)| Checked {
        lock,
        requests: calls.len(),
        found: search(calls, fences.clone()),
    });
    checked.collect()
}

impl Checked<'_> {
    /// If there is no run.
    pub fn violation(&self) -> Option<Violation> {
        let Found::NoRun(next) = &self.found else {
            return None;
        };
        Some(Violation {
            rule: Rule::Specification,
            what: format!(
                "no run of the specification has the replies about {}; the one that comes furthest cannot go on here",
                self.lock
            ),
            ops: next.clone(),
        })
    }
}

fn keep_first_term(calls: &mut Vec<Call<'_>>) {
    let first = calls.iter().min_by_key(|call| call.op.sent);
    let server = first.map(|call| call.op.server);
    calls.retain(|call| Some(call.op.server) == server);
}

/// All locks of a server share a counter. Of several servers, each has its own.
fn fences(history: &History) -> BTreeSet<u64> {
    let ports: BTreeSet<u16> = history.ops.iter().map(|op| op.server.port).collect();
    let calls = history.ops.iter().enumerate();
    let granted = calls.filter_map(|(n, op)| Call::of(n, op)?.fence());
    if ports.len() == 1 {
        granted.collect()
    } else {
        BTreeSet::new()
    }
}
