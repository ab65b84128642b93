//! Waiters are served in the order of arrival, and each request gets one answer.

use super::{Rule, Violation, by_key};
use crate::history::{Answer, History, Micros, Op};

/// New holders that certainly came later than a waiter and certainly were served before it.
pub fn overtaken(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for ops in by_key(history).values() {
        for (n, op) in ops {
            let Some(waiter) = Waiter::of(op) else { continue };
            let later = ops.partition_point(|(_, other)| other.sent <= waiter.arrived_before);
            let rivals = ops[later..]
                .iter()
                .take_while(|(_, rival)| rival.sent < waiter.served_after);
            for (m, rival) in rivals {
                if rival.place == op.place && is_new_owner(rival) && rival.answered < waiter.served_after {
                    found.push(Violation {
                        rule: Rule::Order,
                        what: format!(
                            "{} came later than {} and was served {} us earlier",
                            rival.owner,
                            op.owner,
                            waiter.served_after - rival.answered
                        ),
                        ops: vec![*n, *m],
                    });
                }
            }
        }
    }
    found
}

/// A request that was queued for a while.
struct Waiter {
    arrived_before: Micros,
    served_after: Micros,
}

impl Waiter {
    /// The server tells for how long it was queued: from that, both ends are known.
    fn of(op: &Op) -> Option<Self> {
        match op.answer {
            Answer::Granted { waited_ms: 0, .. } => None,
            Answer::Granted { waited_ms, .. } => Some(Self {
                arrived_before: op.answered.saturating_sub(waited_ms * 1_000),
                served_after: op.sent + waited_ms * 1_000,
            }),
            _ => None,
        }
    }
}

/// Re-entries go first, and a repeated request takes the place of the first one.
fn is_new_owner(op: &Op) -> bool {
    let is_named = op.acquire().is_some_and(|acquire| acquire.reqid.is_some());
    matches!(op.answer, Answer::Granted { holds: 1, .. }) && !is_named
}

/// Requests that got no answer though the connection lasted, or more than one. `silence` says whether the
/// network may have swallowed an answer.
pub fn without_one_answer(history: &History, silence: Silence) -> Vec<Violation> {
    let wrong = |op: &Op| match &op.answer {
        Answer::Silent if silence == Silence::Forbidden => Some("no answer in time"),
        Answer::Strange(_) => Some("an answer that belongs to no request"),
        _ => None,
    };
    let ops = history.ops.iter().enumerate();
    ops.filter_map(|(n, op)| {
        wrong(op).map(|what| Violation {
            rule: Rule::Answers,
            what: format!("{} asked for {}: {what}", op.owner, op.key),
            ops: vec![n],
        })
    })
    .collect()
}

/// Whether an answer may be missing on an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing stands between client and server.
    Forbidden,
    /// A proxy does, which swallows bytes.
    Allowed,
}
