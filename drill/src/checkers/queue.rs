//! Waiters are granted in FIFO order, and every request receives exactly one reply.

use super::{Rule, Violation, by_key};
use crate::history::{Acquire, History, Micros, Op, Reply, Wait};

/// New holders that definitely arrived after a waiter and were granted before it.
pub fn queue_jumps(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for ops in by_key(history).values() {
        for (n, op) in ops {
            let Some(waiter) = Waiter::of(op) else { continue };
            let later = ops.partition_point(|(_, other)| other.sent <= waiter.arrived_before);
            let rivals = ops[later..]
                .iter()
                .take_while(|(_, rival)| rival.sent < waiter.granted_after);
            for (m, rival) in rivals {
                if rival.server == op.server && is_new_owner(rival) && rival.replied < waiter.granted_after {
                    found.push(Violation {
                        rule: Rule::Fifo,
                        what: format!(
                            "{} arrived after {} and was granted {} us earlier",
                            rival.owner,
                            op.owner,
                            waiter.granted_after - rival.replied
                        ),
                        ops: vec![*n, *m],
                    });
                }
            }
        }
    }
    found
}

/// A request that waited in the queue.
struct Waiter {
    arrived_before: Micros,
    granted_after: Micros,
}

impl Waiter {
    /// The reply contains the time in the queue, which bounds arrival and grant.
    fn of(op: &Op) -> Option<Self> {
        match op.reply {
            Reply::Granted {
                waited_ms: waited_ms @ 1..,
                ..
            } => Some(Self {
                arrived_before: op.replied.saturating_sub(waited_ms * 1_000),
                granted_after: op.granted_after(),
            }),
            _ => None,
        }
    }
}

/// Re-entries go first, and a repeated request takes the place of the first one.
fn is_new_owner(op: &Op) -> bool {
    let is_named = op.acquire().is_some_and(|acquire| acquire.reqid.is_some());
    matches!(op.reply, Reply::Granted { holds: 1, .. }) && !is_named
}

/// Requests with no reply on an open connection, unless that may be, or with more than one.
pub fn wrong_replies(history: &History, may_miss_replies: bool) -> Vec<Violation> {
    let wrong = |op: &Op| match &op.reply {
        Reply::TimedOut if !may_miss_replies => Some("no reply in time"),
        Reply::Unexpected(_) => Some("a reply that belongs to no request"),
        _ => None,
    };
    let ops = history.ops.iter().enumerate();
    ops.filter_map(|(n, op)| {
        wrong(op).map(|what| Violation {
            rule: Rule::Replies,
            what: format!("{} requested {}: {what}", op.owner, op.key),
            ops: vec![n],
        })
    })
    .collect()
}

/// Waiters without a reply although their server answered a request that was sent after their time to wait had ended.
/// Other missing replies only show that a server was silent.
pub fn lost_waiters(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (n, op) in history.ops.iter().enumerate() {
        let Some(due) = reply_due(op) else { continue };
        // In the order of replies: those before the client gave up come first.
        let others = history.ops[..n].iter().enumerate().rev();
        let answered = others
            .take_while(|(_, other)| other.replied > due)
            .find(|(_, other)| other.server == op.server && other.sent > due && !other.reply.is_unknown());
        if let Some((m, other)) = answered {
            found.push(Violation {
                rule: Rule::Replies,
                what: format!(
                    "{} waited for {} and was never answered, while {} was",
                    op.owner, op.key, other.owner
                ),
                ops: vec![m, n],
            });
        }
    }
    found
}

/// When a waiter that got no reply should have had one.
fn reply_due(op: &Op) -> Option<Micros> {
    match (op.acquire(), &op.reply) {
        (
            Some(Acquire {
                wait: Wait::Block { timeout_ms },
                ..
            }),
            Reply::TimedOut,
        ) => Some(op.sent + timeout_ms * 1_000),
        _ => None,
    }
}
