//! Why a request would wait forever: as a message for its client, and as a line of the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::graph::{Node, WaitForGraph};
use crate::names::{LockName, Shortened};

/// Owners that wait for each other in a cycle.
///
/// As text it names owners only: the client may have no right to know the locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cycle {
    /// The first of them: each waits for the next, the last of a short cycle for the first.
    pub(crate) links: Vec<Link>,
    /// The number of those that are not shown.
    more: usize,
    /// Whether the rejected request is part of the cycle, and not only blocked by it.
    pub(crate) closed_by_request: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) owner: Box<[u8]>,
    /// The lock that the next owner holds, or for which it is queued ahead.
    pub(crate) waits_for: LockName,
}

/// A longer cycle is truncated.
const MAX_LINKS: usize = 8;

impl Cycle {
    /// The line for the log, with the locks: `alice waits for bob ("a" in db0), bob waits for alice ("b" in db0)`
    pub fn to_log_line(&self) -> String {
        self.text(|lock| format!(" (\"{}\" in db{})", Shortened(&lock.key), lock.db))
    }

    fn text(&self, lock: impl Fn(&LockName) -> String) -> String {
        let link = |(position, link): (usize, &Link)| {
            let (owner, next) = (Shortened(&link.owner), Shortened(&self.next(position)?.owner));
            Some(format!("{owner} waits for {next}{}", lock(&link.waits_for)))
        };
        let links = self.links.iter().enumerate().filter_map(link);
        let more = (self.more > 0).then(|| format!("and {} more", self.more));
        links.chain(more).collect::<Vec<_>>().join(", ")
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
        f.write_str(&self.text(|_| String::new()))?;
        f.write_str(if self.closed_by_request {
            ": release what this owner holds, then try again"
        } else {
            ": this request would wait for them, so try again once a lease or a timeout has broken the cycle"
        })
    }
}

/// An owner, and a lock for which it waits forever.
type Edge = (Node, Node);

/// The shortest cycle through the request of the first owner for `lock`, after a reduction that left it waiting.
///
/// A request that creates a deadlock closes a cycle. One that only runs into a deadlock (formed while detection
/// was off, or by a RENAME) may be outside of it: then the shortest cycle through an owner that it leads to.
pub(super) fn find(graph: &WaitForGraph<'_>, lock: Node) -> Option<Cycle> {
    let by_request = shortest_through(graph, WaitForGraph::FIRST, [(WaitForGraph::FIRST, lock)].into());
    let closed_by_request = by_request.is_some();
    let edges = by_request.or_else(|| {
        let owner = owner_on_cycle(graph, lock)?;
        shortest_through(graph, owner, edges_of(graph, owner).collect())
    })?;
    Some(Cycle {
        links: edges
            .iter()
            .take(MAX_LINKS)
            .filter_map(|edge| link(graph, *edge))
            .collect(),
        more: edges.len().saturating_sub(MAX_LINKS),
        closed_by_request,
    })
}

/// Goes on from a lock to one of its holders, to a lock that this one waits for, until an owner comes again.
fn owner_on_cycle(graph: &WaitForGraph<'_>, mut lock: Node) -> Option<Node> {
    let mut passed = BTreeSet::new();
    loop {
        let (_, holder) = *graph.locks.get(lock)?.holders.first()?;
        if !passed.insert(holder) {
            return Some(holder);
        }
        lock = *graph.owners.get(holder)?.waits.first()?;
    }
}

/// The locks for which an owner waits forever.
fn edges_of<'g>(graph: &'g WaitForGraph<'_>, owner: Node) -> impl Iterator<Item = Edge> + 'g {
    let node = graph.owners.get(owner).into_iter();
    node.flat_map(move |node| node.waits.iter().map(move |lock| (owner, *lock)))
}

/// The shortest cycle from an owner along these edges back to it, by a breadth-first search over the owners that wait
/// forever: from a waiter to the holders of what it waits for, which all wait forever too, or the reduction would have
/// released it.
fn shortest_through(graph: &WaitForGraph<'_>, start: Node, mut next: VecDeque<Edge>) -> Option<Vec<Edge>> {
    // From which owner, and by which lock, each owner is reached.
    let mut reached: BTreeMap<Node, Edge> = BTreeMap::new();
    let mut visited = BTreeSet::new();
    while !reached.contains_key(&start) {
        let edge = next.pop_front()?;
        if visited.insert(edge.1) {
            for (_, holder) in &graph.locks.get(edge.1)?.holders {
                reached.entry(*holder).or_insert_with(|| {
                    next.extend(edges_of(graph, *holder));
                    edge
                });
            }
        }
    }
    let mut edges = vec![*reached.get(&start)?];
    while let Some((owner, _)) = edges.last().copied().filter(|(owner, _)| *owner != start) {
        edges.push(*reached.get(&owner)?);
    }
    edges.reverse();
    Some(edges)
}

fn link(graph: &WaitForGraph<'_>, (owner, waits_for): Edge) -> Option<Link> {
    Some(Link {
        owner: graph.owners.get(owner)?.name.into(),
        waits_for: graph.locks.get(waits_for)?.name.clone(),
    })
}
