//! Who holds a lock is not told that it does not, before its lease ends.

use super::{Rule, Violation, by_key_and_owner};
use crate::history::{Answer, History, Micros, Op, Request};

/// Answers that deny a hold which certainly lasted. Only for runs in which nothing that was answered may
/// be lost: an unplanned failover loses holds.
pub fn broken_leases(history: &History) -> Vec<Violation> {
    let owners = by_key_and_owner(history);
    owners.values().flat_map(|ops| of_one_owner(ops)).collect()
}

/// The hold that an owner certainly has.
struct Promise {
    n: usize,
    fence: u64,
    until: Micros,
}

fn of_one_owner(ops: &[(usize, &Op)]) -> Vec<Violation> {
    let mut promise: Option<Promise> = None;
    let mut found = Vec::new();
    for (n, op) in ops {
        if let Some(broken) = promise.as_ref().filter(|promise| denies(op, promise)) {
            found.push(Violation {
                rule: Rule::Leases,
                what: format!(
                    "{} holds {} for {} us more, and was told: {}",
                    op.owner,
                    op.key,
                    broken.until - op.answered,
                    op.answer
                ),
                ops: vec![broken.n, *n],
            });
        }
        promise = next(promise, *n, op);
    }
    found
}

fn denies(op: &Op, promise: &Promise) -> bool {
    if op.answered >= promise.until {
        return false;
    }
    match (&op.request, &op.answer) {
        (_, Answer::Granted { fence, .. }) => *fence != promise.fence,
        (Request::Acquire(_), Answer::Null) => true,
        (Request::Extend { fence, .. } | Request::Release { fence, .. }, answer) => {
            answer.is_refused_with(&["NOTHELD", "NOTOWNER"])
                || answer.is_refused_with(&["STALE"]) && *fence == Some(promise.fence)
        }
        _ => false,
    }
}

fn next(promise: Option<Promise>, n: usize, op: &Op) -> Option<Promise> {
    let until = op.safe_deadline();
    match (&op.request, &op.answer, promise) {
        (_, Answer::Granted { fence, .. }, old) => Some(Promise {
            n,
            fence: *fence,
            until: old.map_or(until, |old| old.until.max(until)),
        }),
        (_, Answer::Lease(_), Some(old)) => Some(Promise {
            until: old.until.max(until),
            ..old
        }),
        (Request::Release { .. }, Answer::Left(1..), old) => old,
        // One question is enough: after a denial the next one would be the same.
        (Request::Release { .. }, _, _) | (_, Answer::Refused(_), _) => None,
        (_, _, old) => old,
    }
}
