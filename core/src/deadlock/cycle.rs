//! Why a request would wait forever: as a message for its client, and as a line of the log.

use std::collections::VecDeque;
use std::fmt;

use super::graph::{NodeId, WaitForGraph};
use crate::name::LockName;

/// Owners that wait for each other in a cycle.
///
/// As text it names owners only: the client may have no right to know the locks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The first of them: each waits for the next, the last of a short cycle for the first.
    pub(crate) links: Vec<Link>,
    /// The number of those that are not shown.
    more: usize,
    /// Whether the rejected request is part of the cycle, and not only blocked by it.
    pub(crate) closed_by_request: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) owner: Box<[u8]>,
    pub(crate) waits_for: LockName,
    /// Whether the next owner holds this lock, and does not only wait ahead in its queue.
    pub(crate) next_holds: bool,
}

/// A longer cycle is truncated.
const MAX_LINKS: usize = 8;
/// Longer names are cut.
const MAX_NAME_BYTES: usize = 64;

impl Cycle {
    /// The line for the log, with the locks: `alice waits for "a" (db0), which bob holds; bob waits for "b" (db0),
    /// which alice holds`
    pub fn to_log_line(&self) -> String {
        let mut line = String::new();
        for (position, link) in self.links.iter().enumerate() {
            let separator = if position == 0 { "" } else { "; " };
            let Link { owner, waits_for, .. } = link;
            let (owner, key) = (Shortened(owner), Shortened(&waits_for.key));
            line += &format!("{separator}{owner} waits for \"{key}\" (db{})", waits_for.db);
            if let Some(next) = self.next(position) {
                let next = Shortened(&next.owner);
                line += &if link.next_holds {
                    format!(", which {next} holds")
                } else {
                    format!(", where {next} is queued ahead")
                };
            }
        }
        if self.more > 0 {
            line += &format!("; and {} more", self.more);
        }
        line
    }

    /// For whom the owner at this position waits, unless that one is not shown.
    fn next(&self, position: usize) -> Option<&Link> {
        let is_complete = self.more == 0;
        let first = self.links.first().filter(|_| is_complete);
        self.links.get(position.saturating_add(1)).or(first)
    }
}

/// `alice waits for bob, bob waits for alice: ` and what to do.
impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, link) in self.links.iter().enumerate() {
            if let Some(next) = self.next(position) {
                let separator = if position == 0 { "" } else { ", " };
                let (owner, next) = (Shortened(&link.owner), Shortened(&next.owner));
                write!(f, "{separator}{owner} waits for {next}")?;
            }
        }
        if self.more > 0 {
            write!(f, ", and {} more", self.more)?;
        }
        f.write_str(if self.closed_by_request {
            ": release what this owner holds, then try again"
        } else {
            ": this request would wait for them, try again when a lease or a timeout has let one go"
        })
    }
}

/// The start of a long name.
struct Shortened<'a>(&'a [u8]);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.get(..MAX_NAME_BYTES) {
            Some(start) if start.len() < self.0.len() => write!(f, "{}...", start.escape_ascii()),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
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
        more: edges.len().saturating_sub(MAX_LINKS),
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
    debug_assert!(false, "an owner that waits forever waits for nobody who does");
    edges
}

/// What this owner waits for, and one of its holders.
fn blocked_by(graph: &WaitForGraph<'_>, owner: NodeId) -> Option<(NodeId, NodeId)> {
    let lock = *graph.owners.get(owner)?.waits.first()?;
    let (_, holder) = *graph.locks.get(lock)?.holders.first()?;
    Some((lock, holder))
}

fn describe(graph: &WaitForGraph<'_>, edges: &[Edge]) -> Vec<Link> {
    let next = edges.iter().cycle().skip(1);
    edges
        .iter()
        .zip(next)
        .take(MAX_LINKS)
        .filter_map(|(edge, (next, _))| link(graph, *edge, *next))
        .collect()
}

fn link(graph: &WaitForGraph<'_>, (owner, waits_for): Edge, next: NodeId) -> Option<Link> {
    Some(Link {
        owner: graph.owners.get(owner)?.name.into(),
        waits_for: graph.locks.get(waits_for)?.name.clone(),
        next_holds: graph.owners.get(next)?.holds.get(&waits_for)?.is_real,
    })
}
