//! Searches the queues for a deadlock: builds the part of the wait-for graph that a waiting owner depends on.

use std::collections::BTreeMap;

use super::owners::OwnerEntry;
use super::{Entry, Queue, WaitTable};
use crate::deadlock::{self, Found, Node, WaitForGraph};
use crate::names::{LockName, LockNameRef, Ticket};
use crate::time::LeaseClock;

/// The holders and waiters that a search looks at: enough for a cycle of 1 000 owners, each of them a holder and a waiter.
/// A longer search would stop all other clients for longer than the deadlocks of real programs, of a handful of owners,
/// are worth. Those that cannot be part of a cycle count too, so that this bounds all the work.
const MAX_STEPS: usize = 2_000;

impl WaitTable {
    /// Searches for a cycle that keeps this owner waiting for that lock forever.
    pub(crate) fn find_deadlock(&self, name: LockNameRef<'_>, owner: &[u8], clock: LeaseClock) -> Found {
        if !self.owners.may_close_cycle(owner) {
            return Found::Nothing;
        }
        match self.wait_for_graph(owner, clock) {
            Ok(graph) => deadlock::search(graph, name),
            Err(found) => found,
        }
    }

    /// The part of the wait-for graph that is reached from `owner`, which is its first owner, unless that takes too many
    /// steps, or a lock has too many holders.
    pub(crate) fn wait_for_graph<'a>(
        &'a self,
        owner: &'a [u8],
        clock: LeaseClock,
    ) -> Result<WaitForGraph<'a>, Found> {
        let mut builder = GraphBuilder {
            table: self,
            clock,
            steps: 0,
            graph: WaitForGraph::default(),
            owners: Vec::new(),
            owner_ids: BTreeMap::new(),
            lock_ids: BTreeMap::new(),
            visited_up_to: Vec::new(),
        };
        builder.intern(owner);
        let mut visited = 0;
        // Owners that are found are appended.
        while let Some((owner, entry)) = builder.owners.get(visited).copied() {
            for name in entry.waits.iter() {
                let entry = self.entry(name.as_ref());
                let entry = entry.ok_or(Found::Impossible("an owner waits in no queue"))?;
                builder
                    .visit_lock((visited, owner), entry)
                    .ok_or(Found::Unknown)?;
            }
            visited = visited.saturating_add(1);
        }
        Ok(builder.graph)
    }
}

struct GraphBuilder<'a> {
    table: &'a WaitTable,
    clock: LeaseClock,
    steps: usize,
    graph: WaitForGraph<'a>,
    /// The owners of the graph.
    owners: Vec<(&'a [u8], &'a OwnerEntry)>,
    owner_ids: BTreeMap<&'a [u8], Node>,
    lock_ids: BTreeMap<&'a LockName, Node>,
    /// The last waiter of each lock that has been visited: those after it do not matter.
    visited_up_to: Vec<Option<Ticket>>,
}

impl<'a> GraphBuilder<'a> {
    /// The node of an owner. `None` if it waits for nothing: then it cannot be part of a deadlock.
    fn intern(&mut self, owner: &'a [u8]) -> Option<Node> {
        if let Some(node) = self.owner_ids.get(owner) {
            return Some(*node);
        }
        let entry = self.table.owners.waiting(owner)?;
        let node = self.graph.add_owner(owner);
        self.owners.push((owner, entry));
        self.owner_ids.insert(owner, node);
        Some(node)
    }

    fn step(&mut self) -> Option<()> {
        self.steps = self.steps.saturating_add(1);
        (self.steps <= MAX_STEPS).then_some(())
    }

    fn visit_lock(&mut self, owner: (Node, &[u8]), entry: &'a Entry) -> Option<()> {
        let lock = self.visit_holders(entry)?;
        self.visit_waiters_up_to(owner, lock, &entry.queue)
    }

    /// Visits the live holders of a lock, unless that has been done.
    fn visit_holders(&mut self, entry: &'a Entry) -> Option<Node> {
        if let Some(lock) = self.lock_ids.get(&entry.name) {
            return Some(*lock);
        }
        let lock = self.graph.add_lock(&entry.name);
        self.lock_ids.insert(&entry.name, lock);
        self.visited_up_to.push(None);
        for (owner, limit) in entry.live_holders(self.clock)? {
            self.step()?;
            if let Some(owner) = self.intern(owner) {
                self.graph.add_holder(lock, owner, limit);
            }
        }
        Some(lock)
    }

    /// Visits an owner and the waiters ahead of it, except those that have been visited.
    fn visit_waiters_up_to(
        &mut self,
        (node, name): (Node, &[u8]),
        lock: Node,
        queue: &'a Queue,
    ) -> Option<()> {
        let visited = self.visited_up_to.get(lock).copied().flatten();
        let Some(last) = queue.first_ticket_of(name).filter(|last| visited < Some(*last)) else {
            return Some(());
        };
        for (ticket, waiter) in queue.between(visited, last) {
            self.step()?;
            let owner = if ticket == last {
                Some(node)
            } else {
                self.intern(waiter.owner())
            };
            if let Some(owner) = owner {
                self.graph.add_waiter(lock, owner, waiter.limit());
            }
        }
        if let Some(visited) = self.visited_up_to.get_mut(lock) {
            *visited = Some(last);
        }
        Some(())
    }
}
