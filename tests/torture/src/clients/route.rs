//! Directs clients to the current primary.

use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dlock_drill::clients::{self, Link};
use dlock_testkit::Connection;
use redis::{RedisResult, Value};

use super::conn_cutter::ConnCutter;
use crate::history::{Reply, ServerTerm};

const ASKING_TIMEOUT: Duration = Duration::from_secs(20);

/// Directs clients to the current primary and its term. Updated by failovers, and in a cluster by redirections.
#[derive(Clone, Default)]
pub struct Route(Arc<Mutex<Map>>);

#[derive(Default)]
struct Map {
    /// Target of all keys that are not in `moved`.
    home: Target,
    /// Ports by key, from redirections of a cluster.
    moved: HashMap<String, u16>,
    /// All nodes of a cluster with their terms.
    nodes: Vec<ServerTerm>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Port to connect to: the server's or a proxy's.
    pub port: u16,
    /// The server that replies.
    pub server: ServerTerm,
}

impl Target {
    fn direct(server: ServerTerm) -> Self {
        Self {
            port: server.port,
            server,
        }
    }
}

impl Route {
    /// A route to a server without a proxy.
    pub fn to(port: u16, term: u32) -> Self {
        let route = Self::default();
        route.set(port, term);
        route
    }

    /// A route to a cluster. Clients start at the first node.
    pub fn to_cluster(nodes: Vec<ServerTerm>) -> Self {
        let home = Target::direct(nodes[0]);
        let map = Map {
            home,
            nodes,
            ..Map::default()
        };
        Self(Arc::new(Mutex::new(map)))
    }

    /// Redirects all clients.
    pub fn set(&self, port: u16, term: u32) {
        self.set_via_proxy(port, port, term);
    }

    /// Redirects all clients through a proxy.
    pub fn set_via_proxy(&self, proxy: u16, port: u16, term: u32) {
        self.map().home = Target {
            port: proxy,
            server: ServerTerm { port, term },
        };
    }

    /// Sets the term of a cluster node.
    pub fn set_term(&self, port: u16, term: u32) {
        let mut map = self.map();
        let nodes = map.nodes.iter_mut();
        nodes
            .filter(|node| node.port == port)
            .for_each(|node| node.term = term);
    }

    fn target(&self, key: &str) -> Target {
        let map = self.map();
        map.moved.get(key).map_or(map.home, |port| map.node(*port))
    }

    /// The target of a redirection.
    fn node(&self, port: u16) -> Target {
        self.map().node(port)
    }

    fn record_moved(&self, key: &str, port: u16) {
        self.map().moved.insert(key.to_owned(), port);
    }

    /// The node of a key is down: the next request goes to another node.
    fn try_next_node(&self, key: &str, port: u16) {
        let mut map = self.map();
        let dead = map.nodes.iter().position(|node| node.port == port);
        if let Some(dead) = dead {
            let next = map.nodes[(dead + 1) % map.nodes.len()].port;
            map.moved.insert(key.to_owned(), next);
        }
    }

    fn map(&self) -> MutexGuard<'_, Map> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map {
    fn node(&self, port: u16) -> Target {
        let known = self.nodes.iter().find(|node| node.port == port);
        Target::direct(known.copied().unwrap_or(ServerTerm { port, term: 0 }))
    }
}

/// The route of one client, whose connection others can cut.
#[derive(Default)]
pub struct ClientRoute {
    route: Route,
    pub cutter: ConnCutter,
}

/// For another client, with a connection of its own.
impl Clone for ClientRoute {
    fn clone(&self) -> Self {
        self.route.clone().into()
    }
}

impl From<Route> for ClientRoute {
    fn from(route: Route) -> Self {
        Self {
            route,
            cutter: ConnCutter::default(),
        }
    }
}

/// A connection to a target.
pub struct TargetLink {
    target: Target,
    connection: Connection,
}

impl Link for TargetLink {
    fn server(&self) -> ServerTerm {
        self.target.server
    }

    fn call(&mut self, words: &[String], timeout: Duration) -> RedisResult<Value> {
        self.connection.call(words, timeout)
    }
}

/// The cutter has another handle to the socket.
impl Drop for TargetLink {
    fn drop(&mut self) {
        if let Ok(stream) = self.connection.try_clone_stream() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl ClientRoute {
    fn connect(&self, key: &str, target: Target) -> Option<TargetLink> {
        let Ok(connection) = Connection::open(target.port) else {
            self.cutter.set(None);
            self.route.try_next_node(key, target.port);
            return None;
        };
        self.cutter.set(connection.try_clone_stream().ok());
        Some(TargetLink { target, connection })
    }
}

impl clients::Route for ClientRoute {
    type Link = TargetLink;

    fn open(&self, key: &str) -> Option<TargetLink> {
        self.connect(key, self.route.target(key))
    }

    fn leads_over(&self, key: &str, link: &TargetLink) -> bool {
        self.route.target(key) == link.target
    }

    fn follow(&self, key: &str, reply: &Reply) -> Option<Option<TargetLink>> {
        let (is_moved, port) = redirection(reply)?;
        if is_moved {
            self.route.record_moved(key, port);
            return Some(self.open(key));
        }
        let mut link = self.connect(key, self.route.node(port));
        if let Some(link) = &mut link {
            // If this fails, so does the request.
            let _ = link.call(&["ASKING".to_owned()], ASKING_TIMEOUT);
        }
        Some(link)
    }
}

/// Parses `MOVED 3999 127.0.0.1:6381` or `ASK ...`: whether it is MOVED, and the port.
pub(super) fn redirection(reply: &Reply) -> Option<(bool, u16)> {
    let Reply::Error(error) = reply else {
        return None;
    };
    let mut words = error.split_whitespace();
    let is_moved = match words.next()? {
        "MOVED" => true,
        "ASK" => false,
        _ => return None,
    };
    let (_, port) = words.nth(1)?.rsplit_once(':')?;
    Some((is_moved, port.parse().ok()?))
}
