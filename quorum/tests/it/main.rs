//! Locks on a majority of servers, of which some fail.

mod acquire;
mod examples;
mod exit;
mod faults;
mod one_round;
mod pauses;
mod queue;
mod support;

use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Journal, ms, soon, until};
use dlock_testkit::{Proxy, SLOW_MACHINE, Server, Way, renewed};
use redis_dlock_quorum::{Error, Guard, Locks, Settings};
use tokio::task::JoinHandle;

/// That of the default settings.
const NODE_TIMEOUT: Duration = ms(1000);

/// Some servers, each behind a network of its own.
struct Nodes {
    servers: Vec<Server>,
    network: Network,
}

/// A way to each of the servers.
struct Network {
    proxies: Vec<Proxy>,
}

impl Network {
    fn to(servers: &[Server]) -> Self {
        let proxies = servers.iter().map(|server| Proxy::to(server.port())).collect();
        Self { proxies }
    }

    fn locks(&self) -> Locks {
        self.locks_with(Settings::default())
    }

    fn locks_with(&self, settings: Settings) -> Locks {
        Locks::with(self.proxies.iter().map(Proxy::url), settings).unwrap()
    }
}

impl std::ops::Deref for Nodes {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.network
    }
}

impl Nodes {
    fn start(count: usize) -> Self {
        Self::with(count, "dlock.quorum yes")
    }

    fn with(count: usize, config: &str) -> Self {
        let servers: Vec<Server> = (0..count).map(|_| Server::with(config)).collect();
        let network = Network::to(&servers);
        Self { servers, network }
    }

    /// At first the servers that started later have larger fences. Each raise brings the first one closer.
    async fn level_fences(&self, locks: &Locks) {
        for number in 0..20 {
            let guard = locks.acquire(format!("warm-up {number}")).await.unwrap();
            guard.release().await.unwrap();
            locks.shutdown().await;
        }
    }

    /// The same servers, seen through another network.
    fn behind_other_proxies(&self) -> Network {
        Network::to(&self.servers)
    }

    /// Requests for ACQUIRE, EXTEND and RELEASE, of each server.
    fn calls(&self) -> Vec<[u64; 3]> {
        let of = |server: &Server| {
            ["dlock.acquire", "dlock.extend", "dlock.release"].map(|name| server.client().calls(name))
        };
        self.servers.iter().map(of).collect()
    }

    fn occupy(&self, servers: impl IntoIterator<Item = usize>, key: &str) {
        for server in servers {
            self.servers[server]
                .client()
                .acquire(&format!("{key} somebody 60000"));
        }
    }

    /// Waits until that many requests are in the queue of the first server.
    async fn until_waiting(&self, key: &str, count: usize) {
        let waiting = || self.servers[0].client().waiting(key) == count as i64;
        until(&format!("{count} to wait for {key}"), waiting).await;
    }

    /// Waits until that many requests are in the queue of each server.
    async fn until_waiting_everywhere(&self, key: &str, count: usize) {
        let waiting = |server: &Server| server.client().waiting(key) == count as i64;
        until(&format!("{count} to wait for {key} everywhere"), || {
            self.servers.iter().all(waiting)
        })
        .await;
    }

    /// Waits until a request that holds the first of three servers is in the queues of the others.
    async fn until_waiting_elsewhere(&self, key: &str) {
        let waiting = || {
            self.servers[1..]
                .iter()
                .all(|server| server.client().waiting(key) == 1)
        };
        until(&format!("one to wait for {key} at the others"), waiting).await;
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

/// An acquisition in a task of its own.
fn acquiring(locks: &Locks, key: &str) -> JoinHandle<Result<Guard, Error>> {
    let lock = locks.lock(key);
    tokio::spawn(async move { lock.acquire().await })
}

/// Whether the server has not been killed.
fn accepts(server: &Server) -> bool {
    TcpStream::connect(("127.0.0.1", server.port())).is_ok()
}
