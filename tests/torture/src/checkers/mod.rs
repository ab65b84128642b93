//! What reads a history and says which rules it breaks.
//!
//! A checker accuses only where the history leaves no other explanation. The time of a request on the
//! server is known only between the sending and the reply, so that many true faults go unseen and no
//! false one is seen. An reply that never came is unknown: the request may have been carried out, or not.

mod fences;
mod final_states;
mod holds;
mod leases;
mod lost_writes;
mod overlap;
mod queue;
mod restores;
#[cfg(test)]
mod seeded_faults;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{History, Op};

pub use fences::wrong_fences;
pub use final_states::unclean_final_states;
pub use leases::broken_leases;
pub use lost_writes::lost_writes;
pub use overlap::overlaps;
pub use queue::{MissingReplies, queue_jumps, wrong_replies};
pub use restores::wrong_restores;

/// A rule that was broken, and the requests that prove it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// What happened, in one line.
    pub what: String,
    /// The requests, by their server in the history.
    pub ops: Vec<usize>,
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Never more holders than the limit.
    Overlap,
    /// Fences rise with every new holder, and are equal under re-entry.
    Fences,
    /// Who holds a lock is not told that it does not, before its lease final_states.
    Leases,
    /// No acknowledged write is lost.
    LostWrites,
    /// Waiters are served in the order of arrival.
    Fifo,
    /// Each request gets one reply, and not two.
    Replies,
    /// A server that starts on its data has a state that it had before.
    Restored,
    /// In the end nothing is left, and no server has crashed.
    FinalStates,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlap => "overlap",
            Self::Fences => "fences",
            Self::Leases => "leases",
            Self::LostWrites => "lost_writes",
            Self::Fifo => "order",
            Self::Replies => "replies",
            Self::Restored => "restored",
            Self::FinalStates => "final_states",
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
