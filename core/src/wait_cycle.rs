//! Why somebody waits for ever, in words.

use std::collections::VecDeque;
use std::fmt;

use super::deadlock::{NodeId, WaitForGraph};

/// Owners that wait for each other in a circle: each has a claim on what the one before it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    pub(super) links: Vec<Link>,
    /// Whether the request that was refused is part of it, and not only stuck behind it.
    pub(super) closed_by_request: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) owner: Box<[u8]>,
    pub(super) claim: Claim,
    /// The key of what the owner before it waits for.
    pub(super) claims: Box<[u8]>,
    pub(super) waits_for: Box<[u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Holds,
    /// Will hold it before this owner has its turn.
    QueuedAhead(Box<[u8]>),
}

/// An owner, and a lock for which it waits for ever.
type Edge = (NodeId, NodeId);

/// The shortest circle through the request of `owner` for `lock`, after a reduction that left it waiting.
///
/// A request that makes a deadlock closes a circle. One that only meets a deadlock (one that formed while
/// nobody searched, or that a RENAME made) may stand outside: then a circle that it waits for.
pub(super) fn shortest_cycle(graph: &WaitForGraph<'_>, owner: NodeId, lock: NodeId) -> Cycle {
    let closed = Paths::from(graph, owner, lock).back();
    let closed_by_request = closed.is_some();
    let edges = closed.unwrap_or_else(|| follow(graph, owner));
    Cycle {
        links: describe(graph, &edges),
        closed_by_request,
    }
}

/// A search in breadth over those who wait for ever: from a waiter to the holders of what it waits for, who
/// all wait for ever too, or they would have given it up.
struct Paths<'w> {
    graph: &'w WaitForGraph<'w>,
    start: NodeId,
    /// From whom, and by which lock, each owner is reached.
    reached: Vec<Option<Edge>>,
    /// The locks whose holders are reached.
    visited: Vec<bool>,
    next: VecDeque<Edge>,
}

impl<'w> Paths<'w> {
    fn from(graph: &'w WaitForGraph<'w>, start: NodeId, lock: NodeId) -> Self {
        Self {
            graph,
            start,
            reached: vec![None; graph.owners.len()],
            visited: vec![false; graph.locks.len()],
            next: VecDeque::from([(start, lock)]),
        }
    }

    /// The shortest way that leads back to the start, if there is one.
    fn back(mut self) -> Option<Vec<Edge>> {
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

/// From a waiter to one who holds what it waits for, and on, until one comes again.
fn follow(graph: &WaitForGraph<'_>, owner: NodeId) -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::new();
    let mut places = vec![None; graph.owners.len()];
    let mut owner = owner;
    while let Some((lock, holder)) = blocked_by(graph, owner) {
        let place = places.get_mut(owner).and_then(|place| place.replace(edges.len()));
        if let Some(place) = place {
            return edges.split_off(place);
        }
        edges.push((owner, lock));
        owner = holder;
    }
    edges
}

/// What this owner waits for, and somebody who holds it.
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
        /// A longer circle is cut.
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
