//! What reads a history and says which rules it breaks.
//!
//! A checker accuses only where the history leaves no other explanation. The time of a request on the
//! server is known only between the sending and the answer, so that many true faults go unseen and no
//! false one is seen. An answer that never came is unknown: the request may have been carried out, or not.

mod effect;
mod ends;
mod fences;
mod holds;
mod leases;
mod overlap;
#[cfg(test)]
mod planted;
mod queue;
mod restored;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{History, Op};

pub use effect::lost_elements;
pub use ends::unclean_ends;
pub use fences::wrong_fences;
pub use leases::broken_leases;
pub use overlap::overlaps;
pub use queue::{Silence, overtaken, without_one_answer};
pub use restored::wrongly_restored;

/// A rule that was broken, and the requests that prove it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// What happened, in one line.
    pub what: String,
    /// The requests, by their place in the history.
    pub ops: Vec<usize>,
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Never more holders than the limit.
    Overlap,
    /// Fences rise with every new holder, and are equal under re-entry.
    Fences,
    /// Who holds a lock is not told that it does not, before its lease ends.
    Leases,
    /// No acknowledged write is lost.
    Effect,
    /// Waiters are served in the order of arrival.
    Order,
    /// Each request gets one answer, and not two.
    Answers,
    /// A server that starts on its data has a state that it had before.
    Restored,
    /// In the end nothing is left, and no server has crashed.
    Ends,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlap => "overlap",
            Self::Fences => "fences",
            Self::Leases => "leases",
            Self::Effect => "effect",
            Self::Order => "order",
            Self::Answers => "answers",
            Self::Restored => "restored",
            Self::Ends => "ends",
        })
    }
}

/// The requests for each lock, with their places in the history, in the order in which they were sent.
fn by_key(history: &History) -> BTreeMap<&str, Vec<(usize, &Op)>> {
    let mut keys: BTreeMap<&str, Vec<(usize, &Op)>> = BTreeMap::new();
    for (n, op) in history.ops.iter().enumerate() {
        keys.entry(&op.key).or_default().push((n, op));
    }
    for ops in keys.values_mut() {
        ops.sort_by_key(|(_, op)| op.sent);
    }
    keys
}

/// As [`by_key`], for each owner alone. An owner does one thing at a time, so this is also the order in
/// which its requests were carried out.
fn by_key_and_owner(history: &History) -> BTreeMap<(&str, &str), Vec<(usize, &Op)>> {
    let mut owners: BTreeMap<(&str, &str), Vec<(usize, &Op)>> = BTreeMap::new();
    for (key, ops) in by_key(history) {
        for (n, op) in ops {
            owners.entry((key, &op.owner)).or_default().push((n, op));
        }
    }
    owners
}
