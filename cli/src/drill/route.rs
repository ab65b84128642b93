//! Connections of the contenders, and which server they lead to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_drill::clients::{Link, Route};
use dlock_drill::history::{Micros, ServerTerm, now};
use redis::{Cmd, ConnectionLike as _, RedisResult, Value};

use crate::server::{Fields, Node, Target};

/// After other errors, the contender looks for the server again: it may be a replica now, or no longer have the slot.
const EXPECTED_ERRORS: [&str; 4] = ["NOTHELD", "NOTOWNER", "STALE", "GRACE"];

/// A route to the deployment of the command line.
#[derive(Clone)]
pub struct TargetRoute {
    target: Target,
    is_cluster: bool,
    terms: Terms,
}

impl TargetRoute {
    pub fn new(target: Target, is_cluster: bool) -> Self {
        Self {
            target,
            is_cluster,
            terms: Terms::default(),
        }
    }

    pub fn terms(&self) -> Vec<Term> {
        self.terms.lock().clone()
    }
}

impl Route for TargetRoute {
    type Link = NodeLink;

    fn open(&self, key: &str) -> Option<NodeLink> {
        let mut node = self.target.node_of(key.as_bytes()).ok()?;
        // Without permission for INFO, a server is known by its address alone.
        let info = node.info(&["server", "replication"]).unwrap_or_default();
        if info.get("role") == "slave" {
            return None;
        }
        let key = self.is_cluster.then_some(key);
        let term = self.terms.find_or_add(&node.name, &info, key);
        Some(NodeLink {
            node,
            term,
            is_outdated: false,
        })
    }

    fn leads_over(&self, _: &str, link: &NodeLink) -> bool {
        !link.is_outdated
    }
}

/// A connection to a server in one of its terms.
pub struct NodeLink {
    node: Node,
    term: u32,
    is_outdated: bool,
}

impl Link for NodeLink {
    fn server(&self) -> ServerTerm {
        ServerTerm {
            port: 0,
            term: self.term,
        }
    }

    fn call(&mut self, words: &[String], timeout: Duration) -> RedisResult<Value> {
        let mut command = Cmd::new();
        words.iter().for_each(|word| _ = command.arg(word));
        let connection = &mut self.node.connection;
        connection.set_read_timeout(Some(timeout))?;
        let reply = connection.req_packed_command(&command.get_packed_command());
        if let Ok(Value::ServerError(error)) = &reply {
            self.is_outdated = !EXPECTED_ERRORS.contains(&error.code());
        }
        reply
    }
}

/// A server from its start or promotion until it is replaced.
#[derive(Clone, Debug)]
pub struct Term {
    /// `host:port`
    pub server: String,
    /// When a contender first reached it.
    pub since: Micros,
    identity: String,
    /// In a cluster, each lock has its own servers.
    key: Option<String>,
}

impl Term {
    /// Whether both grant the same locks.
    pub fn has_locks_of(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

/// The terms that contenders have met, in this order.
#[derive(Clone, Default)]
struct Terms(Arc<Mutex<Vec<Term>>>);

impl Terms {
    /// The number of the current term of a server.
    fn find_or_add(&self, server: &str, info: &Fields, key: Option<&str>) -> u32 {
        let identity = identity(info);
        let mut terms = self.lock();
        let is_same = |term: &Term| term.server == server && term.identity == identity;
        let known = match key {
            // An old primary that goes on keeps its term.
            None => terms.iter().position(is_same),
            // A slot may return to a node.
            Some(_) => {
                let last = terms.iter().rposition(|term| term.key.as_deref() == key);
                last.filter(|&last| is_same(&terms[last]))
            }
        };
        let number = known.unwrap_or_else(|| {
            terms.push(Term {
                server: server.to_owned(),
                since: now(),
                identity,
                key: key.map(str::to_owned),
            });
            terms.len() - 1
        });
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Term>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changes with each start and promotion. A primary that was never promoted may change its replication id at any time.
fn identity(info: &Fields) -> String {
    let was_promoted = info.get("master_replid2").bytes().any(|byte| byte != b'0');
    let promotion = if was_promoted {
        info.get("master_replid")
    } else {
        ""
    };
    format!("{} {promotion}", info.get("run_id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &str = "0000000000000000000000000000000000000000";

    fn info(run: &str, id: &str, former: &str) -> Fields {
        Fields::parse(&format!(
            "run_id:{run}\r\nmaster_replid:{id}\r\nmaster_replid2:{former}\r\n"
        ))
    }

    #[test]
    fn term_begins_with_start_and_promotion() {
        let terms = Terms::default();
        let term = |server: &str, info: &Fields| terms.find_or_add(server, info, None);
        assert_eq!(term("one:1", &info("a", "x", NONE)), 0);
        assert_eq!(term("one:1", &info("a", "y", NONE)), 0, "a new replication id");
        assert_eq!(term("two:1", &info("b", "z", "y")), 1, "promoted");
        assert_eq!(term("one:1", &info("a", "y", NONE)), 0, "goes on");
        assert_eq!(term("one:1", &info("c", "v", NONE)), 2, "restarted");
        assert_eq!(term("two:1", &info("b", "w", "z")), 3, "promoted again");
    }

    #[test]
    fn slot_that_returns_to_a_node_begins_a_term() {
        let terms = Terms::default();
        let (one, two) = (info("a", "x", NONE), info("b", "y", NONE));
        let servers = [("one:1", &one), ("two:1", &two), ("two:1", &two), ("one:1", &one)];
        let numbers: Vec<u32> = servers
            .iter()
            .map(|(server, info)| terms.find_or_add(server, info, Some("door")))
            .collect();
        assert_eq!(numbers, [0, 1, 1, 2]);
        assert_eq!(terms.find_or_add("one:1", &one, Some("gate")), 3, "another lock");
    }
}
