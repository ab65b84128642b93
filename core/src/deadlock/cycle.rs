//! Why a request would wait forever, as a message.

use std::collections::VecDeque;
use std::fmt;

use super::graph::{NodeId, WaitForGraph};
use crate::name::LockName;

/// Owners that wait for each other in a cycle: each has a claim on what the one before it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The first of them.
    pub(crate) links: Vec<Link>,
    /// The number of those that are not shown.
    more: usize,
    /// Whether the rejected request is part of the cycle, and not only blocked by it.
    pub(crate) closed_by_request: bool,
    /// Not all locks are in the database of the request.
    names_databases: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) owner: Shortened,
    pub(crate) claim: Claim,
    /// The lock that the owner before it waits for; `None` if that must not be shown.
    pub(crate) claims: Option<LockName>,
    pub(crate) waits_for: Option<LockName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Holds,
    /// It waits ahead of this owner in the queue.
    QueuedAhead(Shortened),
}

/// A longer cycle is truncated.
const MAX_LINKS: usize = 8;
/// Longer names are cut.
const MAX_NAME_BYTES: usize = 64;
/// No link is shown that would make the text longer: together with the advice it stays below 4 kB.
const MAX_LINKS_BYTES: usize = 3_900;

impl Cycle {
    /// Leaves out the locks that the caller must not read.
    pub fn retain_locks(&mut self, mut may_read: impl FnMut(&LockName) -> bool) {
        for link in &mut self.links {
            for lock in [&mut link.claims, &mut link.waits_for] {
                lock.take_if(|lock| !may_read(lock));
            }
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
    let db_of = |lock: NodeId| graph.locks.get(lock).map(|node| node.name.db);
    Cycle {
        links: describe(graph, &edges),
        more: edges.len().saturating_sub(MAX_LINKS),
        closed_by_request,
        names_databases: edges.iter().any(|(_, claimed)| db_of(*claimed) != db_of(lock)),
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
            for (_, holder) in self.graph.locks.get(lock)?.holders.keys() {
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
            self.next.extend(node.waits.keys().map(|lock| (owner, *lock)));
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
    let before = edges.iter().cycle().skip(edges.len().saturating_sub(1));
    edges
        .iter()
        .zip(before)
        .take(MAX_LINKS)
        .filter_map(|(edge, before)| link(graph, *edge, *before))
        .collect()
}

fn link(graph: &WaitForGraph<'_>, (owner, waits_for): Edge, (other, claims): Edge) -> Option<Link> {
    let node = graph.owners.get(owner)?;
    let claim = if node.holds.get(&claims)?.is_real {
        Claim::Holds
    } else {
        Claim::QueuedAhead(Shortened::new(graph.owners.get(other)?.name))
    };
    Some(Link {
        owner: Shortened::new(node.name),
        claim,
        claims: Some(graph.locks.get(claims)?.name.clone()),
        waits_for: Some(graph.locks.get(waits_for)?.name.clone()),
    })
}

/// `alice holds a, waits for b; bob holds b, waits for a: ` and what to do.
impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut more = self.more;
        for link in &self.links {
            let link = link.text(self.names_databases);
            match link.filter(|link| text.len().saturating_add(link.len()) <= MAX_LINKS_BYTES) {
                Some(link) => text.extend([if text.is_empty() { "" } else { "; " }, &link]),
                None => more = more.saturating_add(1),
            }
        }
        f.write_str(if text.is_empty() {
            "owners wait for each other"
        } else {
            &text
        })?;
        if more > 0 {
            write!(f, "; and {more} more")?;
        }
        f.write_str(if self.closed_by_request {
            ": release what this owner holds, then try again"
        } else {
            ": this request would wait for them, try again when a lease or a timeout has let one go"
        })
    }
}

impl Link {
    /// `None` if the caller must read neither lock.
    fn text(&self, names_databases: bool) -> Option<String> {
        let lock = |lock: &Option<LockName>| match lock {
            None => "another lock".to_owned(),
            Some(lock) if names_databases => format!("{} (db{})", Shortened::new(&lock.key), lock.db),
            Some(lock) => Shortened::new(&lock.key).to_string(),
        };
        let Self { owner, claims, .. } = self;
        let claim = match &self.claim {
            _ if claims.is_none() && self.waits_for.is_none() => return None,
            Claim::QueuedAhead(other) if claims.is_some() => {
                format!("stands before {other} in the queue of {}", lock(claims))
            }
            Claim::QueuedAhead(_) => "stands in the queue of another lock".to_owned(),
            Claim::Holds => format!("holds {}", lock(claims)),
        };
        Some(format!("{owner} {claim}, waits for {}", lock(&self.waits_for)))
    }
}

/// A name as the text shows it: the start of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shortened {
    start: Box<[u8]>,
    is_cut: bool,
}

impl Shortened {
    fn new(name: &[u8]) -> Self {
        let start = name.get(..MAX_NAME_BYTES);
        Self {
            start: start.unwrap_or(name).into(),
            is_cut: name.len() > MAX_NAME_BYTES,
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.start
    }
}

impl fmt::Display for Shortened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}",
            self.start.escape_ascii(),
            if self.is_cut { "..." } else { "" }
        )
    }
}
