//! What the guard on a majority shares with its tasks: the guards on the single servers.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::hold::{Hold, NodeLease};
use crate::clock::BootInstant;
use crate::connect::Address;
use crate::error::LostReason;
use crate::guard::Guard as NodeGuard;
use crate::owner::Owner;
use crate::sync::lock;

/// Timers do not count suspend: after it, a loss is noticed within this time.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// A hold on a majority of servers.
pub(super) struct Held {
    pub key: Arc<[u8]>,
    pub owner: Owner,
    state: Mutex<State>,
    /// Wakes the task that watches.
    changed: Notify,
    lost: CancellationToken,
}

struct State {
    hold: Hold,
    nodes: Vec<Node>,
}

/// The hold on one of the servers.
#[derive(Clone)]
pub(super) struct Node {
    pub guard: Arc<NodeGuard>,
    pub address: Address,
    /// The longest lease that was requested.
    lease: Duration,
}

/// What to watch, and how long.
struct Watched {
    /// Until then, no lease expires.
    quiet_for: Duration,
    /// Cancelled when a server's hold is lost.
    tokens: Vec<CancellationToken>,
}

impl Node {
    pub fn new(guard: NodeGuard, address: Address, lease: Duration) -> Self {
        Self {
            guard: Arc::new(guard),
            address,
            lease,
        }
    }

    /// The guard itself, unless an extension uses it.
    pub fn into_guard(self) -> Option<NodeGuard> {
        Arc::into_inner(self.guard)
    }

    fn lease(&self) -> NodeLease {
        let reason = self.guard.lost_reason();
        NodeLease {
            remaining: self.guard.remaining(),
            lease: self.lease,
            is_reported_lost: matches!(
                reason,
                Some(LostReason::NotHeld | LostReason::NotOwner | LostReason::Stale)
            ),
        }
    }
}

impl Held {
    pub fn new(key: &Arc<[u8]>, owner: &Owner, hold: Hold, nodes: Vec<Node>) -> Arc<Self> {
        Arc::new(Self {
            key: Arc::clone(key),
            owner: owner.clone(),
            state: Mutex::new(State { hold, nodes }),
            changed: Notify::new(),
            lost: CancellationToken::new(),
        })
    }

    pub fn remaining(&self) -> Duration {
        lock(&self.state).with(|hold, now, leases| hold.remaining(now, leases))
    }

    pub fn lost_reason(&self) -> Option<LostReason> {
        lock(&self.state).with(|hold, now, leases| hold.lost_reason(now, leases))
    }

    /// Cancelled when the lock is lost.
    pub fn token(&self) -> &CancellationToken {
        &self.lost
    }

    /// The servers that granted the lock.
    pub fn nodes(&self) -> Vec<Node> {
        lock(&self.state).nodes.clone()
    }

    /// Adds a server that granted late. `Some` if the lock has ended: then it must be released.
    pub fn join(&self, node: Node) -> Option<Node> {
        let mut state = lock(&self.state);
        if !state.hold.is_open() {
            return Some(node);
        }
        state.nodes.push(node);
        self.changed.notify_one();
        None
    }

    /// A server has extended its lease.
    pub fn note_lease(&self, node: &Node, lease: Duration) {
        let mut state = lock(&self.state);
        let known = state
            .nodes
            .iter_mut()
            .find(|known| Arc::ptr_eq(&known.guard, &node.guard));
        if let Some(known) = known {
            known.lease = known.lease.max(lease);
        }
    }

    /// Gives the lock up: why it was lost before, if it was, and the guards to release. Nothing, if called again.
    pub fn give_up(&self) -> (Option<LostReason>, Vec<Node>) {
        let mut state = lock(&self.state);
        let reason = state.with(|hold, now, leases| hold.give_up(now, leases));
        self.changed.notify_one();
        (reason, std::mem::take(&mut state.nodes))
    }

    /// Notifies the holder when the lock is lost. Ends with the hold.
    pub async fn watch(held: Weak<Self>) {
        let Some(held) = held.upgrade() else {
            return;
        };
        while let Some(Watched { quiet_for, tokens }) = held.watched() {
            let mut losses: FuturesUnordered<_> = tokens
                .into_iter()
                .map(CancellationToken::cancelled_owned)
                .collect();
            tokio::select! {
                () = held.changed.notified() => {}
                Some(()) = losses.next() => {}
                () = sleep(quiet_for.min(MAX_SLEEP)) => {}
            }
        }
    }

    fn watched(&self) -> Option<Watched> {
        self.notify_loss();
        lock(&self.state).watched()
    }

    /// Notifies the holder once if the lock is lost, and releases the remaining servers: they would block others for
    /// nothing.
    pub fn notify_loss(&self) {
        let mut state = lock(&self.state);
        let Some(reason) = state.with(|hold, now, leases| hold.on_time(now, leases)) else {
            return;
        };
        let remaining = std::mem::take(&mut state.nodes);
        drop(state);
        let key = String::from_utf8_lossy(&self.key);
        tracing::error!(%key, owner = %self.owner, %reason, "lock on a majority of servers lost");
        self.lost.cancel();
        drop(remaining);
    }
}

impl State {
    fn with<T>(&mut self, access: impl FnOnce(&mut Hold, BootInstant, &[NodeLease]) -> T) -> T {
        let leases: Vec<NodeLease> = self.nodes.iter().map(Node::lease).collect();
        access(&mut self.hold, BootInstant::now(), &leases)
    }

    fn watched(&mut self) -> Option<Watched> {
        if !self.hold.is_open() {
            return None;
        }
        let quiet_for = self.with(|hold, now, leases| hold.remaining(now, leases));
        let tokens = self.nodes.iter().map(|node| node.guard.token());
        Some(Watched {
            quiet_for,
            tokens: tokens.filter(|token| !token.is_cancelled()).collect(),
        })
    }
}
