//! From when until when an owner certainly held a lock.

use super::by_key_and_owner;
use crate::history::{History, Limit, Micros, Op, Reply, Request};

/// A time in which an owner certainly was a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold<'a> {
    /// The request whose reply began it.
    pub op: usize,
    pub key: &'a str,
    pub owner: &'a str,
    pub limit: Limit,
    /// The reply was received.
    pub from: Micros,
    /// A release was sent, the owner was told that it is no holder, or the safe deadline had come.
    pub to: Micros,
}

/// All certain holds. Those of one owner may overlap: a re-entry, an extension.
pub fn certain_holds(history: &History) -> Vec<Hold<'_>> {
    let owners = by_key_and_owner(history);
    let holds = owners
        .into_iter()
        .flat_map(|((key, owner), ops)| of_one_owner(key, owner, &ops));
    holds.filter(|hold| hold.from < hold.to).collect()
}

fn of_one_owner<'a>(key: &'a str, owner: &'a str, ops: &[(usize, &Op)]) -> Vec<Hold<'a>> {
    let mut holds: Vec<Hold<'a>> = Vec::new();
    let mut limit = None;
    for (n, op) in ops {
        if let (Reply::Granted { .. }, Some(acquire)) = (&op.reply, op.acquire()) {
            limit = Some(acquire.limit);
        }
        match (&op.reply, limit) {
            (Reply::Granted { .. } | Reply::Lease(_), Some(limit)) => holds.push(Hold {
                op: *n,
                key,
                owner,
                limit,
                from: op.replied,
                to: op.safe_deadline(),
            }),
            _ => {
                if let Some(end) = end_of_all(op) {
                    holds.iter_mut().for_each(|hold| hold.to = hold.to.min(end));
                }
            }
        }
    }
    holds
}

/// When this request may have ended all holds of its owner, at the earliest.
fn end_of_all(op: &Op) -> Option<Micros> {
    match (&op.request, &op.reply) {
        (Request::Release { .. }, Reply::Remaining(1..)) => None,
        (Request::Release { .. }, _) => Some(op.sent),
        _ if op.reply.is_error(&["NOTHELD", "NOTOWNER", "STALE"]) => Some(op.replied),
        _ => None,
    }
}
