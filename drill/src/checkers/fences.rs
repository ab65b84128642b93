//! Fences increase with every new holder and stay the same on re-entry.

use std::collections::{BTreeMap, BTreeSet};

use super::{Rule, Violation, by_key, by_key_and_owner};
use crate::history::{History, Micros, Op, Reply};

/// Grants with a wrong fence. Not for runs with RENAME, RESTORE and the like.
pub fn wrong_fences(history: &History) -> Vec<Violation> {
    let fresh = fresh_grants(history);
    let mut found = Vec::new();
    for ops in by_key(history).values() {
        let grants = ops.iter().filter_map(|(n, op)| Grant::of(*n, op, &fresh));
        let grants: Vec<Grant> = grants.collect();
        found.extend(non_increasing(&grants));
        found.extend(duplicates(&grants));
    }
    for ops in by_key_and_owner(history).values() {
        found.extend(changed_on_reentry(ops, &fresh));
    }
    found
}

/// A grant with bounds on its time on the server.
#[derive(Clone, Copy)]
struct Grant<'a> {
    n: usize,
    owner: &'a str,
    fence: u64,
    term: u32,
    /// Lower bound.
    after: Micros,
    /// Upper bound.
    before: Micros,
    /// The owner was not a holder before.
    is_fresh: bool,
}

impl<'a> Grant<'a> {
    fn of(n: usize, op: &'a Op, fresh: &BTreeSet<usize>) -> Option<Self> {
        let Reply::Granted { fence, .. } = op.reply else {
            return None;
        };
        Some(Self {
            n,
            owner: &op.owner,
            fence,
            term: op.server.term,
            after: op.granted_after(),
            before: op.replied,
            is_fresh: fresh.contains(&n),
        })
    }
}

/// Grants that made their owner a holder: not re-entries, not replies to repeated requests.
fn fresh_grants(history: &History) -> BTreeSet<usize> {
    let mut fresh = BTreeSet::new();
    for ops in by_key_and_owner(history).values() {
        let mut used = BTreeSet::new();
        for (n, op) in ops {
            let Some(acquire) = op.acquire() else { continue };
            let is_repeated = acquire.reqid.as_ref().is_some_and(|id| used.contains(id));
            if !is_repeated && matches!(op.reply, Reply::Granted { holds: 1, .. }) {
                fresh.insert(*n);
            }
            // A rejected request made no hold; in a cluster it may have been a redirection.
            if !matches!(op.reply, Reply::Error(_)) {
                used.extend(&acquire.reqid);
            }
        }
    }
    fresh
}

/// New holders whose fence does not exceed all earlier ones and all of earlier terms.
fn non_increasing(grants: &[Grant<'_>]) -> Vec<Violation> {
    let mut terms: BTreeMap<u32, Vec<Grant<'_>>> = BTreeMap::new();
    for grant in grants {
        terms.entry(grant.term).or_default().push(*grant);
    }
    let mut found = Vec::new();
    let mut highest_of_earlier_terms: Option<Grant<'_>> = None;
    for mut earlier in terms.into_values() {
        let mut later: Vec<Grant<'_>> = earlier.iter().copied().filter(|grant| grant.is_fresh).collect();
        later.sort_by_key(|grant| grant.after);
        earlier.sort_by_key(|grant| grant.before);
        let mut earlier = earlier.into_iter().peekable();
        let mut highest = highest_of_earlier_terms;
        for grant in later {
            while let Some(known) = earlier.next_if(|known| known.before < grant.after) {
                highest = higher(highest, known);
            }
            found.extend(highest.filter(|known| known.fence >= grant.fence).map(|known| {
                let what = format!(
                    "{} got fence {} after {} got {}",
                    grant.owner, grant.fence, known.owner, known.fence
                );
                violation(what, vec![known.n, grant.n])
            }));
        }
        highest_of_earlier_terms = earlier.fold(highest, |highest, known| higher(highest, known));
    }
    found
}

fn higher<'a>(highest: Option<Grant<'a>>, other: Grant<'a>) -> Option<Grant<'a>> {
    match highest {
        Some(grant) if grant.fence >= other.fence => Some(grant),
        _ => Some(other),
    }
}

/// Fences granted to two owners of a lock.
fn duplicates(grants: &[Grant<'_>]) -> Vec<Violation> {
    let mut owners: BTreeMap<u64, Grant<'_>> = BTreeMap::new();
    let mut found = Vec::new();
    for grant in grants {
        let first = *owners.entry(grant.fence).or_insert(*grant);
        if first.owner != grant.owner {
            let what = format!(
                "{} and {} both got fence {}",
                first.owner, grant.owner, grant.fence
            );
            found.push(violation(what, vec![first.n, grant.n]));
        }
    }
    found
}

/// Re-entries with a different fence.
fn changed_on_reentry(ops: &[(usize, &Op)], fresh: &BTreeSet<usize>) -> Vec<Violation> {
    let mut seen: Vec<SeenFence> = Vec::new();
    let mut is_unsure = false;
    let mut found = Vec::new();
    for (n, op) in ops.iter().filter(|(_, op)| op.acquire().is_some()) {
        let Reply::Granted { fence, .. } = op.reply else {
            is_unsure |= op.reply.is_unknown();
            continue;
        };
        let this = SeenFence {
            n: *n,
            fence,
            term: op.server.term,
        };
        if fresh.contains(n) {
            is_unsure = false;
        } else if !is_unsure
            && let Some(last) = seen.last()
            && !this.may_follow(&seen)
        {
            let what = format!("{} re-entered with fence {fence} after {}", op.owner, last.fence);
            found.push(violation(what, vec![last.n, *n]));
        }
        seen.push(this);
    }
    found
}

/// A fence that an owner received.
struct SeenFence {
    n: usize,
    fence: u64,
    term: u32,
}

impl SeenFence {
    /// A hold keeps its fence within a term. The primary of the next term may know only an earlier hold of this owner, if
    /// later changes were not replicated.
    fn may_follow(&self, seen: &[Self]) -> bool {
        match seen.last() {
            Some(last) if last.term == self.term => last.fence == self.fence,
            _ => seen.iter().any(|earlier| earlier.fence == self.fence),
        }
    }
}

fn violation(what: String, ops: Vec<usize>) -> Violation {
    Violation {
        rule: Rule::Fences,
        what,
        ops,
    }
}
