//! There are never more holders than the limit.

use super::holds::{Hold, certain_holds};
use super::{Rule, Violation};
use crate::history::{History, Limit};

/// Times at which more owners definitely held a lock than its strictest limit allows.
pub fn overlaps(history: &History) -> Vec<Violation> {
    let mut holds = certain_holds(history);
    holds.sort_by(|a, b| a.key.cmp(b.key).then(a.from.cmp(&b.from)));
    let locks = holds.chunk_by(|a, b| a.key == b.key);
    locks.flat_map(of_one_lock).collect()
}

/// Checks at the start of each hold, where the number of holders peaks.
fn of_one_lock(holds: &[Hold<'_>]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut present: Vec<&Hold<'_>> = Vec::new();
    for hold in holds {
        present.retain(|other| other.to > hold.from);
        let is_new = present.iter().all(|other| other.owner != hold.owner);
        present.push(hold);
        if is_new && owners(&present).len() > strictest(&present) {
            found.push(violation(hold, &present));
        }
    }
    found
}

fn owners<'a>(holds: &[&Hold<'a>]) -> Vec<&'a str> {
    let mut owners: Vec<&str> = holds.iter().map(|hold| hold.owner).collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

fn strictest(holds: &[&Hold<'_>]) -> usize {
    match holds.iter().map(|hold| hold.limit).min() {
        Some(Limit::Of(limit)) => limit as usize,
        Some(Limit::Shared) | None => usize::MAX,
    }
}

fn violation(last: &Hold<'_>, present: &[&Hold<'_>]) -> Violation {
    let until = present.iter().map(|hold| hold.to).min().unwrap_or(last.to);
    Violation {
        rule: Rule::Overlap,
        what: format!(
            "{} held {} together for at least {} us",
            owners(present).join(" and "),
            last.key,
            until - last.from
        ),
        ops: present.iter().map(|hold| hold.op).collect(),
    }
}
