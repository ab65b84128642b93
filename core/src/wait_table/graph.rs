//! Builds the part of the wait-for graph that a waiting owner depends on.

use std::collections::HashMap;

use super::{Entry, WaitTable};
use crate::context::TransitionContext;
use crate::deadlock::{NodeId, WaitForGraph};
use crate::name::LockName;
use crate::queue::Queue;
use crate::ticket::Ticket;

/// The graph that is reached from `owner`, which is its first owner.
pub(crate) fn reached_from<'a>(
    table: &'a WaitTable,
    owner: &'a [u8],
    cx: &TransitionContext,
) -> WaitForGraph<'a> {
    let mut builder = GraphBuilder::default();
    builder.intern(owner);
    let mut visited = 0;
    // Owners that are found are appended.
    while let Some(owner) = builder.graph.owners.get(visited).map(|node| node.name) {
        for entry in table.waits_of(owner) {
            let lock = builder.visit_holders(table, entry, cx);
            builder.visit_waiters_up_to(owner, lock, &entry.queue);
        }
        visited = visited.saturating_add(1);
    }
    builder.graph
}

#[derive(Default)]
struct GraphBuilder<'a> {
    graph: WaitForGraph<'a>,
    owners: HashMap<&'a [u8], NodeId>,
    locks: HashMap<&'a LockName, NodeId>,
    /// The last waiter of each lock that has been visited: those after it do not matter.
    visited_up_to: HashMap<NodeId, Ticket>,
}

impl<'a> GraphBuilder<'a> {
    fn intern(&mut self, name: &'a [u8]) -> NodeId {
        *self
            .owners
            .entry(name)
            .or_insert_with(|| self.graph.add_owner(name))
    }

    fn visit_holders(&mut self, table: &'a WaitTable, entry: &'a Entry, cx: &TransitionContext) -> NodeId {
        if let Some(lock) = self.locks.get(&entry.name) {
            return *lock;
        }
        let lock = self.graph.add_lock(&entry.name);
        self.locks.insert(&entry.name, lock);
        for (owner, limit) in entry.waiting_holders(&table.owners, cx) {
            let owner = self.intern(owner);
            self.graph.add_holder(lock, owner, limit);
        }
        lock
    }

    /// Visits `owner` and the waiters ahead of it, except those that have been visited.
    fn visit_waiters_up_to(&mut self, owner: &[u8], lock: NodeId, queue: &'a Queue) {
        let visited = self.visited_up_to.get(&lock).copied();
        let Some(last) = queue.first_ticket_of(owner).filter(|last| visited < Some(*last)) else {
            return;
        };
        for (ticket, waiter) in queue.between(visited, last) {
            // The other requests of an owner are granted together with its first.
            if queue.first_ticket_of(waiter.owner()) == Some(ticket) {
                let owner = self.intern(waiter.owner());
                self.graph.add_waiter(lock, owner, waiter.limit());
            }
        }
        self.visited_up_to.insert(lock, last);
    }
}
