//! Who could never be served.
//!
//! By reduction: every owner that is not itself waiting gives up all it holds; the grant rule and the queue
//! order then admit some waiters; those of them that wait for nothing else give up all they hold too, and so
//! on. Whoever still waits in the end waits for ever. Circles among owners would be right for mutexes only:
//! a semaphore is free as soon as any one of its holders leaves.
//!
//! Only what the request depends on is looked at: the holders of its lock and those who wait before it, the
//! locks that these wait for, and so on. Each lock, owner and request is visited once; each owner gives up
//! once, and each request is admitted once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::limit::Limit;
use super::queue::{Queue, Ticket};
use super::time::Instant;
use super::wait_cycle::{self, Cycle};
use super::wait_table::{Entry, LockName, WaitTable};

/// What keeps this owner waiting for that lock for ever, `None` when it will be served.
pub(super) fn search(wait_table: &WaitTable, name: &LockName, owner: &[u8], now: Instant) -> Option<Cycle> {
    let mut graph = WaitForGraph::reached_by(wait_table, owner, now);
    graph.reduce();
    let lock = graph.locks.iter().position(|node| node.name == name)?;
    let owner = WaitForGraph::FIRST;
    let is_stuck = graph.owners.get(owner)?.waits.contains(&lock);
    is_stuck.then(|| wait_cycle::shortest_cycle(&graph, owner, lock))
}

/// The number of an owner, or of a lock, in a [`WaitForGraph`].
pub(super) type NodeId = usize;

/// All that an owner which waits depends on, in which the reduction is played through.
#[derive(Default)]
pub(super) struct WaitForGraph<'a> {
    pub(super) owners: Vec<OwnerNode<'a>>,
    pub(super) locks: Vec<LockNode<'a>>,
}

pub(super) struct OwnerNode<'a> {
    pub(super) name: &'a [u8],
    pub(super) holds: BTreeMap<NodeId, Hold>,
    pub(super) waits: BTreeSet<NodeId>,
}

pub(super) struct Hold {
    limit: Limit,
    /// Not because the reduction has admitted it.
    pub(super) is_real: bool,
}

pub(super) struct LockNode<'a> {
    pub(super) name: &'a LockName,
    /// The holders, for real or by reduction: the strictest limit comes first.
    pub(super) holders: BTreeSet<(Limit, NodeId)>,
    /// Who waits, in order: one request an owner, since its others are granted with the first.
    pub(super) queue: Vec<(NodeId, Limit)>,
    /// How many of them the reduction has admitted.
    admitted: usize,
    /// How far into the queue of the lock `queue` goes: nobody behind it matters.
    reached: Option<Ticket>,
}

impl<'a> WaitForGraph<'a> {
    /// The owner from which all others are reached.
    const FIRST: NodeId = 0;

    pub(super) fn reached_by(wait_table: &'a WaitTable, owner: &'a [u8], now: Instant) -> Self {
        let mut builder = GraphBuilder::default();
        builder.intern(owner);
        let mut visited = 0;
        // Everybody who is met is put at the end.
        while let Some(owner) = builder.graph.owners.get(visited).map(|node| node.name) {
            for (name, entry) in wait_table.waits_of(owner) {
                let lock = builder.visit_holders(name, entry, now);
                builder.visit_waiters_up_to(owner, lock, &entry.queue);
            }
            visited = visited.saturating_add(1);
        }
        builder.graph
    }

    /// Has everybody give up all who waits for nothing, until nobody is left who could.
    fn reduce(&mut self) {
        // Who fits already is only held back: by a grace, or for a moment.
        (0..self.locks.len()).for_each(|lock| while self.admit(lock).is_some() {});
        let mut idle: Vec<NodeId> = (0..self.owners.len())
            .filter(|owner| self.is_idle(*owner))
            .collect();
        while let Some(owner) = idle.pop() {
            for lock in self.release_all(owner) {
                while let Some(admitted) = self.admit(lock) {
                    idle.extend(Some(admitted).filter(|owner| self.is_idle(*owner)));
                }
            }
        }
    }

    fn is_idle(&self, owner: NodeId) -> bool {
        self.owners.get(owner).is_some_and(|node| node.waits.is_empty())
    }

    /// The locks that the owner held.
    fn release_all(&mut self, owner: NodeId) -> impl Iterator<Item = NodeId> + use<> {
        let holds = self
            .owners
            .get_mut(owner)
            .map(|node| std::mem::take(&mut node.holds))
            .unwrap_or_default();
        for (lock, hold) in &holds {
            if let Some(node) = self.locks.get_mut(*lock) {
                node.holders.remove(&(hold.limit, owner));
            }
        }
        holds.into_keys()
    }

    /// Admits the first waiter, if the grant rule does.
    fn admit(&mut self, lock: NodeId) -> Option<NodeId> {
        let node = self.locks.get_mut(lock)?;
        let (owner, limit) = *node.queue.get(node.admitted)?;
        let strictest = node.holders.first().map_or(limit, |(held, _)| limit.min(*held));
        if !strictest.allows(node.holders.len().saturating_add(1)) {
            return None;
        }
        node.admitted = node.admitted.saturating_add(1);
        node.holders.insert((limit, owner));
        let node = self.owners.get_mut(owner)?;
        node.waits.remove(&lock);
        let is_real = false;
        node.holds.insert(lock, Hold { limit, is_real });
        Some(owner)
    }
}

/// Finds what the world consists of.
#[derive(Default)]
struct GraphBuilder<'a> {
    graph: WaitForGraph<'a>,
    owners: HashMap<&'a [u8], NodeId>,
    locks: HashMap<&'a LockName, NodeId>,
}

impl<'a> GraphBuilder<'a> {
    fn intern(&mut self, name: &'a [u8]) -> NodeId {
        *self.owners.entry(name).or_insert_with(|| {
            self.graph.owners.push(OwnerNode {
                name,
                holds: BTreeMap::new(),
                waits: BTreeSet::new(),
            });
            self.graph.owners.len().saturating_sub(1)
        })
    }

    fn visit_holders(&mut self, name: &'a LockName, entry: &'a Entry, now: Instant) -> NodeId {
        if let Some(lock) = self.locks.get(name) {
            return *lock;
        }
        let lock = self.graph.locks.len();
        self.locks.insert(name, lock);
        let mut holders = BTreeSet::new();
        for member in entry.holders.iter().filter(|member| member.lease_end > now) {
            let (owner, limit) = (self.intern(&member.owner), member.limit);
            holders.insert((limit, owner));
            if let Some(node) = self.graph.owners.get_mut(owner) {
                node.holds.insert(lock, Hold { limit, is_real: true });
            }
        }
        self.graph.locks.push(LockNode {
            name,
            holders,
            queue: Vec::new(),
            admitted: 0,
            reached: None,
        });
        lock
    }

    /// Visits `owner` and whoever stands before it, but for those who have been visited.
    fn visit_waiters_up_to(&mut self, owner: &[u8], lock: NodeId, queue: &'a Queue) {
        let reached = self.graph.locks.get(lock).and_then(|node| node.reached);
        let Some(place) = queue
            .first_ticket_of(owner)
            .filter(|place| reached < Some(*place))
        else {
            return;
        };
        for (ticket, waiter) in queue.between(reached, place) {
            // An owner's first request takes the others along.
            if queue.first_ticket_of(waiter.owner()) == Some(ticket) {
                let owner = self.intern(waiter.owner());
                self.wait(owner, lock, waiter.limit());
            }
        }
        if let Some(node) = self.graph.locks.get_mut(lock) {
            node.reached = Some(place);
        }
    }

    fn wait(&mut self, owner: NodeId, lock: NodeId, limit: Limit) {
        let WaitForGraph { owners, locks } = &mut self.graph;
        let (Some(node), Some(site)) = (owners.get_mut(owner), locks.get_mut(lock)) else {
            return;
        };
        // A holder that waits re-enters: it does not wait for anybody.
        if !node.holds.contains_key(&lock) {
            node.waits.insert(lock);
            site.queue.push((owner, limit));
        }
    }
}
