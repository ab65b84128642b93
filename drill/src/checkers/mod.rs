//! Checkers read a history and report violated rules.
//!
//! Checkers have no false positives: they report only what the history proves. A request took effect at some time
//! between sending and reply, so some violations go undetected. A request without a reply may or may not have been
//! executed.

mod fences;
mod final_states;
mod holds;
mod leases;
mod overlap;
mod queue;
mod restores;
#[cfg(test)]
mod seeded_faults;
mod written_lists;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::{History, Op};

pub use fences::wrong_fences;
pub use final_states::unclean_final_states;
pub use leases::broken_leases;
pub use overlap::overlaps;
pub use queue::{lost_waiters, queue_jumps, wrong_replies};
pub use restores::wrong_restores;
pub use written_lists::{lost_elements, misordered_writes};

/// A violated rule and the requests that prove it.
#[derive(Clone, Debug)]
pub struct Violation {
    pub rule: Rule,
    /// What happened, in one line.
    pub what: String,
    /// Indexes of the requests in the history.
    pub ops: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// There are never more holders than the limit.
    Overlap,
    /// Fences increase with every new holder and stay the same on re-entry.
    Fences,
    /// The server never denies a hold before its lease expires.
    Leases,
    /// No acknowledged write is lost.
    LostWrites,
    /// What is written through GUARD is in the order of grants.
    WriteOrder,
    /// What is written without GUARD is in the order of grants.
    PlainWriteOrder,
    /// Waiters are granted in FIFO order.
    Fifo,
    /// Every request receives exactly one reply.
    Replies,
    /// A restarted server has the state that its data describes.
    Restored,
    /// At the end everybody is answered, all locks are free, servers are empty, and none has crashed.
    FinalStates,
    /// The replies are those of some run of the specification.
    Specification,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overlap => "overlap",
            Self::Fences => "fences",
            Self::Leases => "leases",
            Self::LostWrites => "lost writes",
            Self::WriteOrder => "write order",
            Self::PlainWriteOrder => "plain write order",
            Self::Fifo => "fifo",
            Self::Replies => "replies",
            Self::Restored => "restore",
            Self::FinalStates => "final state",
            Self::Specification => "specification",
        })
    }
}

/// Requests by lock with their indexes, in the order of sending.
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

/// Requests by lock and owner. An owner has one request at a time, so this is also the order of execution.
fn by_key_and_owner(history: &History) -> BTreeMap<(&str, &str), Vec<(usize, &Op)>> {
    let mut owners: BTreeMap<(&str, &str), Vec<(usize, &Op)>> = BTreeMap::new();
    for (key, ops) in by_key(history) {
        for (n, op) in ops {
            owners.entry((key, &op.owner)).or_default().push((n, op));
        }
    }
    owners
}
