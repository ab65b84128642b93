//! The server never denies a hold before its lease expires.

use super::{Rule, Violation, by_key_and_owner};
use crate::history::{History, Micros, Op, Reply, Request};

/// Replies that deny a hold whose lease has not expired. Not for runs that may lose acknowledged changes, such as
/// unplanned failovers.
pub fn broken_leases(history: &History) -> Vec<Violation> {
    let owners = by_key_and_owner(history);
    owners.values().flat_map(|ops| of_one_owner(ops)).collect()
}

/// A hold that the server has promised.
struct PromisedHold {
    n: usize,
    fence: u64,
    until: Micros,
}

fn of_one_owner(ops: &[(usize, &Op)]) -> Vec<Violation> {
    let mut promised: Option<PromisedHold> = None;
    let mut found = Vec::new();
    for (n, op) in ops {
        let is_broken = |promised: &&PromisedHold| denies(op, promised) && !is_push_during_release(op, ops);
        if let Some(broken) = promised.as_ref().filter(is_broken) {
            found.push(Violation {
                rule: Rule::Leases,
                what: format!(
                    "{} holds {} for {} us more, but the server replied: {}",
                    op.owner,
                    op.key,
                    broken.until - op.replied,
                    op.reply
                ),
                ops: vec![broken.n, *n],
            });
        }
        promised = next(promised, *n, op);
    }
    found
}

fn denies(op: &Op, promised: &PromisedHold) -> bool {
    if op.replied >= promised.until {
        return false;
    }
    match (&op.request, &op.reply) {
        (_, Reply::Granted { fence, .. }) => *fence != promised.fence,
        (Request::Acquire(_), Reply::Null) => true,
        (Request::Extend { fence, .. } | Request::Release { fence, .. }, reply) => {
            reply.is_error(&["NOTHELD", "NOTOWNER"])
                || reply.is_error(&["STALE"]) && *fence == Some(promised.fence)
        }
        (Request::Push(push), _) => push.element.fence == promised.fence && op.is_refused_push(),
        _ => false,
    }
}

/// The owner may have released the lock before, on another connection.
fn is_push_during_release(op: &Op, ops: &[(usize, &Op)]) -> bool {
    let overlaps = |other: &Op| other.sent < op.replied && op.sent < other.replied;
    let is_release = |other: &Op| matches!(other.request, Request::Release { .. });
    let is_push = matches!(op.request, Request::Push(_));
    is_push && ops.iter().any(|(_, other)| is_release(other) && overlaps(other))
}

fn next(promised: Option<PromisedHold>, n: usize, op: &Op) -> Option<PromisedHold> {
    let until = op.safe_deadline();
    match (&op.request, &op.reply, promised) {
        (_, Reply::Granted { fence, .. }, old) => Some(PromisedHold {
            n,
            fence: *fence,
            until: old.map_or(until, |old| old.until.max(until)),
        }),
        (_, Reply::Lease(_), Some(old)) => Some(PromisedHold {
            until: old.until.max(until),
            ..old
        }),
        (Request::Release { .. }, Reply::Remaining(1..), old) => old,
        // Report one denial only: the next ones follow from it.
        (Request::Release { .. }, _, _) | (_, Reply::Error(_), _) => None,
        (_, _, old) => old,
    }
}
