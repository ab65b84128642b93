//! The wait-for graph: owners, and the locks that they hold and wait for.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::{Limit, LockName};

/// The index of an owner, or of a lock, in a [`WaitForGraph`].
pub(crate) type Node = usize;

#[derive(Default)]
pub(crate) struct WaitForGraph<'a> {
    pub(crate) owners: Vec<OwnerNode<'a>>,
    pub(crate) locks: Vec<LockNode<'a>>,
}

pub(crate) struct OwnerNode<'a> {
    pub(crate) name: &'a [u8],
    /// With the limit of each.
    holds: BTreeMap<Node, Limit>,
    pub(crate) waits: BTreeSet<Node>,
}

pub(crate) struct LockNode<'a> {
    pub(crate) name: &'a LockName,
    /// The holders, including those that the reduction has admitted: the strictest limit comes first.
    pub(super) holders: BTreeSet<(Limit, Node)>,
    /// The waiters, in order: one request for each owner, since its others are granted together with it.
    pub(crate) queue: Vec<(Node, Limit)>,
    /// How many of them the reduction has admitted.
    admitted: usize,
}

impl<'a> WaitForGraph<'a> {
    /// The owner from which all others are reached.
    pub(crate) const FIRST: Node = 0;

    pub(crate) fn add_owner(&mut self, name: &'a [u8]) -> Node {
        self.owners.push(OwnerNode {
            name,
            holds: BTreeMap::new(),
            waits: BTreeSet::new(),
        });
        self.owners.len().saturating_sub(1)
    }

    pub(crate) fn add_lock(&mut self, name: &'a LockName) -> Node {
        self.locks.push(LockNode {
            name,
            holders: BTreeSet::new(),
            queue: Vec::new(),
            admitted: 0,
        });
        self.locks.len().saturating_sub(1)
    }

    /// One that exists, or that the reduction has admitted.
    pub(crate) fn add_holder(&mut self, lock: Node, owner: Node, limit: Limit) {
        if let (Some(owner_node), Some(lock_node)) = (self.owners.get_mut(owner), self.locks.get_mut(lock)) {
            lock_node.holders.insert((limit, owner));
            owner_node.holds.insert(lock, limit);
        }
    }

    /// Adds the next waiter of a lock, unless it waits there already.
    pub(crate) fn add_waiter(&mut self, lock: Node, owner: Node, limit: Limit) {
        // A holder that waits re-enters: nothing blocks it. The other requests of an owner are granted with its first.
        if let (Some(owner_node), Some(lock_node)) = (self.owners.get_mut(owner), self.locks.get_mut(lock))
            && !owner_node.holds.contains_key(&lock)
            && owner_node.waits.insert(lock)
        {
            lock_node.queue.push((owner, limit));
        }
    }

    /// Whether an owner waits for nothing.
    pub(super) fn is_idle(&self, owner: Node) -> bool {
        self.owners.get(owner).is_some_and(|node| node.waits.is_empty())
    }

    /// Removes an owner from all locks that it holds, and returns these.
    pub(super) fn release_all(&mut self, owner: Node) -> impl Iterator<Item = Node> + use<> {
        let holds = self
            .owners
            .get_mut(owner)
            .map(|node| std::mem::take(&mut node.holds))
            .unwrap_or_default();
        for (lock, limit) in &holds {
            if let Some(node) = self.locks.get_mut(*lock) {
                node.holders.remove(&(*limit, owner));
            }
        }
        holds.into_keys()
    }

    /// Admits the first waiter, if the grant rule does.
    pub(super) fn admit(&mut self, lock: Node) -> Option<Node> {
        let node = self.locks.get_mut(lock)?;
        let (owner, limit) = *node.queue.get(node.admitted)?;
        let strictest = node.holders.first().map_or(limit, |(held, _)| limit.min(*held));
        if !strictest.allows(node.holders.len().saturating_add(1)) {
            return None;
        }
        node.admitted = node.admitted.saturating_add(1);
        self.owners.get_mut(owner)?.waits.remove(&lock);
        self.add_holder(lock, owner, limit);
        Some(owner)
    }
}
