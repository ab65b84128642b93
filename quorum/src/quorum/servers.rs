//! The servers, and which of them are down.
//!
//! A server is down when it does not answer within the node timeout, or answers that it cannot grant locks for now: it
//! loads its data, for instance, or its grace period runs. A task looks at it until it is up again. While requests wait for
//! a server's reply, in its queue for instance, and after one was dropped without a reply, the task looks at it as well,
//! unless it replies to others: nobody else would notice that it is silent.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::health::Health;
use super::majority::Majority;
use super::pace::Pace;
use super::turns::Turns;
use crate::client::Client;
use crate::command::GetOwner;
use crate::connect::BlockingPool;
use crate::error::Error;
use crate::events::{EventKind, Reporter};
use crate::identity::RequestIdentity;
use crate::owner::Owner;
use crate::renewal::RenewalThread;
use crate::sync::lock;

/// What all locks of the same servers share.
pub(super) struct Servers {
    /// In the configured order.
    pub clients: Box<[Arc<Client>]>,
    pub majority: Majority,
    pub node_timeout: Duration,
    health: watch::Sender<Health>,
    pub turns: Turns,
    pub pace: Pace,
    monitors: Box<[Mutex<Monitor>]>,
}

#[derive(Default)]
struct Monitor {
    is_running: bool,
    /// How many requests wait for a reply.
    waiting: usize,
    /// Whether one was dropped without a reply since the last look.
    is_suspect: bool,
    replied_at: Option<Instant>,
}

/// A request that waits for the reply of a server, so that the server is watched.
pub(super) struct Watched {
    servers: Arc<Servers>,
    server: usize,
    /// Whether it is known how the server is.
    is_settled: bool,
}

impl Servers {
    pub fn new(clients: Box<[Arc<Client>]>, node_timeout: Duration) -> Arc<Self> {
        let majority = Majority::of(clients.len());
        Arc::new(Self {
            health: watch::Sender::new(Health::new(clients.len(), majority.needed())),
            turns: Turns::default(),
            pace: Pace::default(),
            monitors: clients.iter().map(|_| Mutex::default()).collect(),
            clients,
            majority,
            node_timeout,
        })
    }

    /// All servers share it.
    pub fn renewal_thread(&self) -> &Arc<RenewalThread> {
        &self.clients[0].renewal_thread
    }

    /// All servers share it.
    pub fn reporter(&self) -> &Reporter {
        &self.clients[0].renewal_context.reporter
    }

    /// Reports what becomes of a lock, as opposed to a request to one server.
    pub fn report(&self, identity: &RequestIdentity, kind: EventKind) {
        self.reporter().report(self.clients[0].address(), identity, kind);
    }

    /// Where acquisitions of this process queue before they wait at the servers: each then has a connection to each.
    pub fn places(&self) -> &Arc<BlockingPool> {
        &self.clients[0].pool
    }

    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// Resolves when the health fulfils the condition.
    pub async fn until(&self, condition: impl Fn(&Health) -> bool) {
        // The sender lives as long as this.
        let _ = self.health.subscribe().wait_for(|health| condition(health)).await;
    }

    /// A request failed with this error. Whether its server is down.
    pub async fn is_down(self: &Arc<Self>, server: usize, key: &Arc<[u8]>, error: &Error) -> bool {
        if !cannot_grant(error) {
            return false;
        }
        if error.is_ambiguous() && self.health().is_up(server) {
            // Maybe only a connection was lost, or this process was busy.
            let probe = RequestIdentity::new(Arc::clone(key), Owner::unique());
            if self.look_at(server, &probe).await {
                return false;
            }
        }
        self.set_up(server, false);
        self.start_monitor(server, key);
        true
    }

    /// Watches a server while a request waits for its reply.
    pub fn watch(self: &Arc<Self>, server: usize, key: &Arc<[u8]>) -> Watched {
        lock(&self.monitors[server]).waiting += 1;
        self.start_monitor(server, key);
        Watched {
            servers: Arc::clone(self),
            server,
            is_settled: false,
        }
    }

    /// Whether one client, whichever, holds the lock on a majority.
    pub async fn is_held(&self, key: &[u8]) -> bool {
        let (health, command) = (self.health(), GetOwner::new(key).into());
        let clients = self.clients.iter().enumerate();
        let asked = clients
            .filter(|(server, _)| health.is_up(*server))
            .map(|(_, client)| {
                let link = &client.renewal_context.link;
                link.query_within::<Option<Owner>>(self.node_timeout / 2, &command)
            });
        let owners: Vec<Owner> = join_all(asked).await.into_iter().flatten().flatten().collect();
        let held_by = |owner| owners.iter().filter(|other| *other == owner).count();
        owners
            .iter()
            .any(|owner| held_by(owner) >= self.majority.needed())
    }

    fn set_up(&self, server: usize, is_up: bool) {
        self.health.send_if_modified(|health| health.set(server, is_up));
    }

    fn start_monitor(self: &Arc<Self>, server: usize, key: &Arc<[u8]>) {
        let was_running = std::mem::replace(&mut lock(&self.monitors[server]).is_running, true);
        if !was_running {
            // A lock of this name, or none: it is never held.
            let probe = RequestIdentity::new(Arc::clone(key), Owner::unique());
            let monitoring = monitor(Arc::downgrade(self), server, probe);
            self.renewal_thread().runtime().spawn(monitoring);
        }
    }

    /// Whether the server answers; after it was down, whether it also grants locks.
    async fn look_at(&self, server: usize, probe: &RequestIdentity) -> bool {
        let link = &self.clients[server].renewal_context.link;
        let limit = self.node_timeout / 2;
        if self.health().is_up(server) {
            let reply = link.query_within::<u64>(limit, &probe.cancel()).await;
            return !reply.is_err_and(|error| cannot_grant(&error));
        }
        let reply = link.query_within::<u64>(limit, &probe.extend_any()).await;
        // During a grace period it would be an error that says so.
        reply.is_err_and(|error| error.is_lost())
    }
}

impl Watched {
    /// The server has granted the lock, or it was found out why not.
    pub fn end(mut self, is_granted: bool) {
        self.is_settled = true;
        if is_granted {
            lock(&self.servers.monitors[self.server]).replied_at = Some(Instant::now());
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut monitor = lock(&self.servers.monitors[self.server]);
        monitor.waiting -= 1;
        monitor.is_suspect |= !self.is_settled;
    }
}

/// Looks at a server, again and again, until it is up, no request waits there and none was dropped. A server that goes
/// silent is noticed after one pause and one request without a reply: within the node timeout.
async fn monitor(servers: Weak<Servers>, server: usize, probe: RequestIdentity) {
    let mut looked_at = Instant::now();
    while let Some(pause) = servers.upgrade().map(|servers| servers.node_timeout / 2) {
        sleep_until(looked_at + pause).await;
        let Some(servers) = servers.upgrade() else {
            return;
        };
        {
            let is_up = servers.health().is_up(server);
            let mut monitor = lock(&servers.monitors[server]);
            let replied_at = monitor.replied_at.take().filter(|at| is_up && *at > looked_at);
            if let Some(replied_at) = replied_at {
                // As good as a look.
                looked_at = replied_at;
                continue;
            }
            let is_suspect = std::mem::take(&mut monitor.is_suspect);
            if monitor.waiting == 0 && !is_suspect && is_up {
                monitor.is_running = false;
                return;
            }
        }
        let is_up = servers.look_at(server, &probe).await;
        servers.set_up(server, is_up);
        looked_at = Instant::now();
    }
}

/// Whether the server cannot grant any lock for now, by its error or its silence.
fn cannot_grant(error: &Error) -> bool {
    let is_about_request = match error {
        Error::QueueFull(_) => true,
        error => error.as_redis().and_then(|error| error.code()) == Some("UNBLOCKED"),
    };
    error.is_transient() && !is_about_request
}
