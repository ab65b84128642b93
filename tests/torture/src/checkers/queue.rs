//! Waiters are served in the order of arrival, and each request gets one reply.

use super::{Rule, Violation, by_key};
use crate::history::{History, Micros, Op, Reply};

/// New holders that certainly came later than a waiter and certainly were served before it.
pub fn queue_jumps(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for ops in by_key(history).values() {
        for (n, op) in ops {
            let Some(waiter) = Waiter::of(op) else { continue };
            let later = ops.partition_point(|(_, other)| other.sent <= waiter.arrived_before);
            let rivals = ops[later..]
                .iter()
                .take_while(|(_, rival)| rival.sent < waiter.served_after);
            for (m, rival) in rivals {
                if rival.server == op.server && is_new_owner(rival) && rival.replied < waiter.served_after {
                    found.push(Violation {
                        rule: Rule::Fifo,
                        what: format!(
                            "{} came later than {} and was served {} us earlier",
                            rival.owner,
                            op.owner,
                            waiter.served_after - rival.replied
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
    /// The server tells for how long it was queued: from that, both final_states are known.
    fn of(op: &Op) -> Option<Self> {
        match op.reply {
            Reply::Granted { waited_ms: 0, .. } => None,
            Reply::Granted { waited_ms, .. } => Some(Self {
                arrived_before: op.replied.saturating_sub(waited_ms * 1_000),
                served_after: op.sent + waited_ms * 1_000,
            }),
            _ => None,
        }
    }
}

/// Re-entries go first, and a repeated request takes the server of the first one.
fn is_new_owner(op: &Op) -> bool {
    let is_named = op.acquire().is_some_and(|acquire| acquire.reqid.is_some());
    matches!(op.reply, Reply::Granted { holds: 1, .. }) && !is_named
}

/// Requests that got no reply though the connection lasted, or more than one. `missing_replies` says whether the
/// network may have swallowed an reply.
pub fn wrong_replies(history: &History, missing_replies: MissingReplies) -> Vec<Violation> {
    let wrong = |op: &Op| match &op.reply {
        Reply::TimedOut if missing_replies == MissingReplies::Forbidden => Some("no reply in time"),
        Reply::Unexpected(_) => Some("an reply that belongs to no request"),
        _ => None,
    };
    let ops = history.ops.iter().enumerate();
    ops.filter_map(|(n, op)| {
        wrong(op).map(|what| Violation {
            rule: Rule::Replies,
            what: format!("{} asked for {}: {what}", op.owner, op.key),
            ops: vec![n],
        })
    })
    .collect()
}

/// Whether an reply may be missing on an open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingReplies {
    /// Nothing stands between client and server.
    Forbidden,
    /// A proxy does, which swallows bytes.
    Allowed,
}
