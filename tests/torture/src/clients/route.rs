//! Where clients find the server that decides.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::history::ServerTerm;

/// Where clients find the server that decides, and the reign that it is in. Changed by a failover, and in a
/// cluster by what servers say.
#[derive(Clone, Default)]
pub struct Route(Arc<Mutex<Map>>);

#[derive(Default)]
struct Map {
    /// For all keys that are not in `moved`.
    home: Target,
    /// Where else a key is, in a cluster.
    moved: HashMap<String, u16>,
    /// All nodes of a cluster, and their reigns.
    nodes: Vec<ServerTerm>,
}

/// See [`Route`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Of the server, or of a proxy before it.
    pub port: u16,
    /// The server itself.
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
    /// To a server without a proxy.
    pub fn to(port: u16, term: u32) -> Self {
        let route = Self::default();
        route.set(port, term);
        route
    }

    /// To a cluster, each node with its reign. Clients begin at the first one.
    pub fn to_cluster(nodes: Vec<ServerTerm>) -> Self {
        let home = Target::direct(nodes[0]);
        let map = Map {
            home,
            nodes,
            ..Map::default()
        };
        Self(Arc::new(Mutex::new(map)))
    }

    /// All clients go there from now on.
    pub fn set(&self, port: u16, term: u32) {
        self.set_via_proxy(port, port, term);
    }

    /// As [`Route::set`], through a proxy.
    pub fn set_via_proxy(&self, proxy: u16, port: u16, term: u32) {
        self.map().home = Target {
            port: proxy,
            server: ServerTerm { port, term },
        };
    }

    /// From now on a node of a cluster is in this reign.
    pub fn set_term(&self, port: u16, term: u32) {
        let mut map = self.map();
        let nodes = map.nodes.iter_mut();
        nodes
            .filter(|node| node.port == port)
            .for_each(|node| node.term = term);
    }

    /// Where to ask for a key.
    pub(super) fn target(&self, key: &str) -> Target {
        let map = self.map();
        map.moved.get(key).map_or(map.home, |port| map.node(*port))
    }

    /// A node that was named by another one.
    pub(super) fn node(&self, port: u16) -> Target {
        self.map().node(port)
    }

    /// Takes note of where a node says that a key is.
    pub(super) fn record_moved(&self, key: &str, port: u16) {
        self.map().moved.insert(key.to_owned(), port);
    }

    /// The node of a key does not reply: the next request asks another one.
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
