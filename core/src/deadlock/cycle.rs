//! Why a request would wait forever, as a message.

use std::collections::VecDeque;
use std::fmt;

use super::graph::{NodeId, WaitForGraph};

/// Owners that wait for each other in a cycle: each has a claim on what the one before it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    pub(crate) links: Vec<Link>,
    /// Whether the rejected request is part of the cycle, and not only blocked by it.
    pub(crate) closed_by_request: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) owner: Box<[u8]>,
    pub(crate) claim: Claim,
    /// The key that the owner before it waits for.
    pub(crate) claims: Box<[u8]>,
    pub(crate) waits_for: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Holds,
    /// It waits ahead of this owner in the queue.
    QueuedAhead(Box<[u8]>),
}

/// An owner, and a lock for which it waits forever.
type Edge = (NodeId, NodeId);

/// The shortest cycle through the request of `owner` for `lock`, after a reduction that left it waiting.
///
/// A request that creates a deadlock closes a cycle. One that only runs into a deadlock (formed while detection
/// was off, or by a RENAME) may be outside of it: then a cycle that it waits for.
pub(super) fn shortest_cycle(graph: &WaitForGraph<'_>, owner: NodeId, lock: NodeId) -> Cycle {
    let closed = Paths::from(graph, owner, lock).back_to_start();
    let closed_by_request = closed.is_some();
    let edges = closed.unwrap_or_else(|| follow(graph, owner));
    Cycle {
        links: describe(graph, &edges),
        closed_by_request,
    }
}

/// A breadth-first search over the owners that wait forever: from a waiter to the holders of what it waits for,
/// which all wait forever too, or the reduction would have released it.
struct Paths<'g> {
    graph: &'g WaitForGraph<'g>,
    start: NodeId,
    /// From which owner, and by which lock, each owner is reached.
    reached: Vec<Option<Edge>>,
    /// The locks whose holders are reached.
    visited: Vec<bool>,
    next: VecDeque<Edge>,
}

impl<'g> Paths<'g> {
    fn from(graph: &'g WaitForGraph<'g>, start: NodeId, lock: NodeId) -> Self {
        Self {
            graph,
            start,
            reached: vec![None; graph.owners.len()],
            visited: vec![false; graph.locks.len()],
            next: VecDeque::from([(start, lock)]),
        }
    }

    /// The shortest path that leads back to the start, if there is one.
    fn back_to_start(mut self) -> Option<Vec<Edge>> {
        while let Some(edge) = self.next.pop_front() {
            let (_, lock) = edge;
            if std::mem::replace(self.visited.get_mut(lock)?, true) {
                continue;
            }
            for (_, holder) in &self.graph.locks.get(lock)?.holders {
                self.reach(*holder, edge);
            }
            if self.edge_to(self.start).is_some() {
                return Some(self.edges_to_start());
            }
        }
        None
    }

    fn reach(&mut self, owner: NodeId, from: Edge) {
        let (Some(reached), Some(node)) = (self.reached.get_mut(owner), self.graph.owners.get(owner)) else {
            debug_assert!(false, "no such node");
            return;
        };
        if reached.is_none() {
            *reached = Some(from);
            self.next.extend(node.waits.iter().map(|lock| (owner, *lock)));
        }
    }

    fn edge_to(&self, owner: NodeId) -> Option<Edge> {
        self.reached.get(owner).copied().flatten()
    }

    fn edges_to_start(&self) -> Vec<Edge> {
        let mut edges = Vec::new();
        let mut owner = self.start;
        while let Some(edge) = self.edge_to(owner) {
            edges.push(edge);
            owner = edge.0;
            if owner == self.start {
                break;
            }
        }
        edges.reverse();
        edges
    }
}

/// From a waiter to a holder of what it waits for, and on, until an owner is reached again.
fn follow(graph: &WaitForGraph<'_>, start: NodeId) -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::new();
    let mut positions = vec![None; graph.owners.len()];
    let mut owner = start;
    while let Some((lock, holder)) = blocked_by(graph, owner) {
        let seen = positions
            .get_mut(owner)
            .and_then(|position| position.replace(edges.len()));
        if let Some(position) = seen {
            return edges.split_off(position);
        }
        edges.push((owner, lock));
        owner = holder;
    }
    debug_assert!(false, "an owner that waits for ever waits for nobody who does");
    edges
}

/// What this owner waits for, and one of its holders.
fn blocked_by(graph: &WaitForGraph<'_>, owner: NodeId) -> Option<(NodeId, NodeId)> {
    let lock = *graph.owners.get(owner)?.waits.first()?;
    let (_, holder) = *graph.locks.get(lock)?.holders.first()?;
    Some((lock, holder))
}

fn describe(graph: &WaitForGraph<'_>, edges: &[Edge]) -> Vec<Link> {
    let before = edges.iter().cycle().skip(edges.len().saturating_sub(1));
    edges
        .iter()
        .zip(before)
        .filter_map(|(edge, before)| link(graph, *edge, *before))
        .collect()
}

fn link(graph: &WaitForGraph<'_>, (owner, waits_for): Edge, (other, claims): Edge) -> Option<Link> {
    let node = graph.owners.get(owner)?;
    let claim = if node.holds.get(&claims)?.is_real {
        Claim::Holds
    } else {
        Claim::QueuedAhead(graph.owners.get(other)?.name.into())
    };
    Some(Link {
        owner: node.name.into(),
        claim,
        claims: graph.locks.get(claims)?.name.key[..].into(),
        waits_for: graph.locks.get(waits_for)?.name.key[..].into(),
    })
}

/// `alice holds a, waits for b; bob holds b, waits for a: ` and what to do.
impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// A longer cycle is truncated.
        const SHOWN: usize = 8;
        for (index, link) in self.links.iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{link}")?;
        }
        match self.links.len().checked_sub(SHOWN) {
            None | Some(0) => {}
            Some(more) => write!(f, "; and {more} more")?,
        }
        f.write_str(if self.closed_by_request {
            ": release what this owner holds, then try again"
        } else {
            ": this request would wait for them, try again when a lease or a timeout has let one go"
        })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, claims) = (self.owner.escape_ascii(), self.claims.escape_ascii());
        match &self.claim {
            Claim::Holds => write!(f, "{owner} holds {claims}")?,
            Claim::QueuedAhead(other) => write!(
                f,
                "{owner} stands before {} in the queue of {claims}",
                other.escape_ascii()
            )?,
        }
        write!(f, ", waits for {}", self.waits_for.escape_ascii())
    }
}
