//! Directs clients to the current primary.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::history::ServerTerm;

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

    pub(super) fn target(&self, key: &str) -> Target {
        let map = self.map();
        map.moved.get(key).map_or(map.home, |port| map.node(*port))
    }

    /// The target of a redirection.
    pub(super) fn node(&self, port: u16) -> Target {
        self.map().node(port)
    }

    pub(super) fn record_moved(&self, key: &str, port: u16) {
        self.map().moved.insert(key.to_owned(), port);
    }

    /// The node of a key is down: the next request goes to another node.
    pub(super) fn try_next_node(&self, key: &str, port: u16) {
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
