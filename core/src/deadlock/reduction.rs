//! The search for a deadlock.
//!
//! By reduction (Holt 1972): every owner that does not wait releases all it holds; the grant rule and the queue
//! order then admit some waiters; those of them that wait for nothing else release all they hold too, and so on.
//! Owners that still wait in the end wait forever. A search for cycles among owners would be right for mutexes
//! only: a semaphore is free as soon as any one of its holders leaves.

use super::cycle::{self, Cycle};
use super::graph::{Node, WaitForGraph};
use crate::names::LockNameRef;

/// What a search has found.
pub(crate) enum Found {
    /// The request will be granted.
    Nothing,
    Deadlock(Cycle),
    /// The search was abandoned: too many owners, or a lock with too many holders.
    Unknown,
    /// A state that is impossible, as far as we know.
    Impossible(&'static str),
}

/// The cycle that keeps the first owner of the graph waiting for that lock forever, if there is one.
pub(crate) fn search(mut graph: WaitForGraph<'_>, name: LockNameRef<'_>) -> Found {
    reduce(&mut graph);
    let Some(lock) = graph.locks.iter().position(|node| node.name.as_ref() == name) else {
        return Found::Impossible("the lock of a request is not in its wait-for graph");
    };
    let owner = graph.owners.get(WaitForGraph::FIRST);
    if !owner.is_some_and(|owner| owner.waits.contains(&lock)) {
        return Found::Nothing;
    }
    match cycle::find(&graph, lock) {
        Some(cycle) => Found::Deadlock(cycle),
        None => Found::Impossible("an owner that waits forever waits for nobody who does"),
    }
}

/// Lets every owner that waits for nothing release all it holds, until no such owner is left.
fn reduce(graph: &mut WaitForGraph<'_>) {
    // A waiter that fits already is only delayed: by a grace period, or until the timer fires.
    (0..graph.locks.len()).for_each(|lock| while graph.admit(lock).is_some() {});
    let mut idle: Vec<Node> = (0..graph.owners.len())
        .filter(|owner| graph.is_idle(*owner))
        .collect();
    while let Some(owner) = idle.pop() {
        for lock in graph.release_all(owner) {
            while let Some(admitted) = graph.admit(lock) {
                idle.extend(Some(admitted).filter(|owner| graph.is_idle(*owner)));
            }
        }
    }
}
