//! The time spans in which an owner definitely held a lock.

use super::by_key_and_owner;
use crate::history::{History, Limit, Micros, Op, Reply, Request};

/// A time span in which an owner definitely held a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold<'a> {
    /// The request that was granted.
    pub op: usize,
    pub key: &'a str,
    pub owner: &'a str,
    pub limit: Limit,
    /// The reply was received.
    pub from: Micros,
    /// A release was sent, the server denied the hold, or the safe deadline passed.
    pub to: Micros,
}

/// All definite holds. Those of one owner may overlap: re-entries and extensions.
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

/// The earliest time at which this request may have ended all holds of its owner.
fn end_of_all(op: &Op) -> Option<Micros> {
    match (&op.request, &op.reply) {
        (Request::Release { .. }, Reply::Remaining(1..)) => None,
        (Request::Release { .. }, _) => Some(op.sent),
        _ if op.reply.is_error(&["NOTHELD", "NOTOWNER", "STALE"]) => Some(op.replied),
        _ => None,
    }
}
