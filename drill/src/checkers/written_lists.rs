//! Lists written under a mutex: what survives is in the order of grants, and only its end may be lost.

use std::collections::{BTreeSet, HashMap};

use super::{Rule, Violation};
use crate::history::{Element, GUARDED, History, List, Op};

/// Elements after those of a later grant, or after later ones of their own grant.
pub fn misordered_writes(history: &History) -> Vec<Violation> {
    let lists = history.lists.iter();
    // A list is recorded before each failover: report each pair once.
    let pairs: BTreeSet<_> = lists
        .flat_map(|list| {
            list.elements
                .windows(2)
                .map(|pair| (&list.name, [pair[0], pair[1]]))
        })
        .filter(|(_, [first, second])| first >= second)
        .collect();
    let violation = |(name, pair): (&String, [Element; 2])| Violation {
        rule: if name.ends_with(GUARDED) {
            Rule::WriteOrder
        } else {
            Rule::PlainWriteOrder
        },
        what: format!("{name} has {} after {}", pair[1], pair[0]),
        ops: acknowledged(history, name)
            .filter(|(_, _, element)| pair.contains(element))
            .map(|(n, ..)| n)
            .collect(),
    };
    pairs.into_iter().map(violation).collect()
}

/// Acknowledged elements that a server has lost although it has later ones of the same term: not only the end is lost.
/// If nothing may be lost, all that are missing at the end.
pub fn lost_elements(history: &History, lossless: bool) -> Vec<Violation> {
    let lost = history.lists.iter().flat_map(|list| gaps(history, list));
    let mut lost: BTreeSet<usize> = lost.collect();
    if lossless {
        let lists = history.lists.iter().filter(|list| list.is_final);
        let kept: BTreeSet<_> = lists.flat_map(|list| &list.elements).collect();
        let missing = acknowledged(history, "").filter(|(_, _, element)| !kept.contains(element));
        lost.extend(missing.map(|(n, ..)| n));
    }
    let violation = |n: usize| Violation {
        rule: Rule::LostWrites,
        what: format!("{} was acknowledged and is lost", history.ops[n].request),
        ops: vec![n],
    };
    lost.into_iter().map(violation).collect()
}

fn gaps(history: &History, list: &List) -> Vec<usize> {
    let kept: BTreeSet<_> = list.elements.iter().collect();
    let writes = || acknowledged(history, &list.name);
    let mut last_kept = HashMap::new();
    for (_, op, _) in writes().filter(|(_, _, element)| kept.contains(element)) {
        let sent = last_kept.entry(op.server).or_insert(op.sent);
        *sent = op.sent.max(*sent);
    }
    let lost = writes().filter(|(_, _, element)| !kept.contains(element));
    lost.filter(|(_, op, _)| last_kept.get(&op.server) > Some(&op.replied))
        .map(|(n, ..)| n)
        .collect()
}

/// The acknowledged writes to lists whose names start like this.
fn acknowledged<'a>(history: &'a History, list: &'a str) -> impl Iterator<Item = (usize, &'a Op, Element)> {
    let ops = history.ops.iter().enumerate();
    ops.filter_map(move |(n, op)| {
        let push = op
            .acknowledged_push()
            .filter(|push| push.list.starts_with(list))?;
        Some((n, op, push.element))
    })
}
