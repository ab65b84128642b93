//! Locks on a majority of servers, of which some fail.

mod acquire;

use std::net::TcpStream;

use crate::support::until;
use dlock_testkit::{Proxy, Server};
use redis_dlock_client::Settings;
use redis_dlock_client::quorum::Locks;

/// Some servers, each behind a network of its own.
struct Nodes {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
}

impl Nodes {
    fn start(count: usize) -> Self {
        Self::with(count, "dlock.quorum yes")
    }

    fn with(count: usize, config: &str) -> Self {
        let servers: Vec<Server> = (0..count).map(|_| Server::with(config)).collect();
        let proxies = servers.iter().map(|server| Proxy::to(server.port())).collect();
        Self { servers, proxies }
    }

    fn locks(&self) -> Locks {
        self.locks_with(Settings::default())
    }

    fn locks_with(&self, settings: Settings) -> Locks {
        Locks::with(self.proxies.iter().map(Proxy::url), settings).unwrap()
    }

    /// Who holds the lock on each server that is there.
    fn holders(&self, key: &str) -> Vec<String> {
        let running = self.servers.iter().filter(|server| accepts(server));
        running.filter_map(|server| server.client().owner(key)).collect()
    }

    /// The fences under which the lock is held.
    fn fences(&self, key: &str) -> Vec<u64> {
        let running = self.servers.iter().filter(|server| accepts(server));
        running
            .flat_map(|server| server.client().find_lock(key))
            .flat_map(|lock| lock.holders)
            .map(|holder| holder.fence)
            .collect()
    }

    async fn until_free(&self, key: &str) {
        let free = || {
            self.servers
                .iter()
                .filter(|server| accepts(server))
                .all(|server| server.client().find_lock(key).is_none())
        };
        until(&format!("{key} to be free everywhere"), free).await;
    }

    async fn until_held(&self, key: &str, count: usize) {
        let held = || self.holders(key).len() == count;
        until(&format!("{count} servers to hold {key}"), held).await;
    }
}

/// Whether the server has not been killed.
fn accepts(server: &Server) -> bool {
    TcpStream::connect(("127.0.0.1", server.port())).is_ok()
}
