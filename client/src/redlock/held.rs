//! What a guard and those that work for it share: the guards on the single servers.

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

/// Timers do not count suspend: after it, what is expiry_reason is noticed within this.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// A hold on a majority of servers.
pub(super) struct Held {
    pub key: Arc<[u8]>,
    pub owner: Owner,
    state: Mutex<State>,
    /// Tells who watches.
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
    /// The longest lease that it was given.
    lease: Duration,
}

/// What there is to watch.
struct LeaseStatus {
    /// So long nothing happens by itself.
    calm: Duration,
    /// These tell that a server's hold is lost.
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

    fn share(&self) -> NodeLease {
        let reason = self.guard.lost_reason();
        NodeLease {
            remaining: self.guard.remaining(),
            lease: self.lease,
            is_denied: matches!(
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
        lock(&self.state).with(|hold, now, shares| hold.remaining(now, shares))
    }

    pub fn lost_reason(&self) -> Option<LostReason> {
        lock(&self.state).with(|hold, now, shares| hold.lost_reason(now, shares))
    }

    /// Cancelled when the lock is lost.
    pub fn token(&self) -> &CancellationToken {
        &self.lost
    }

    /// The servers that hold the lock, or did.
    pub fn nodes(&self) -> Vec<Node> {
        lock(&self.state).nodes.clone()
    }

    /// A server has granted late. When it is too late, it is to be given back.
    pub fn join(&self, node: Node) -> Option<Node> {
        let mut state = lock(&self.state);
        if !state.hold.is_open() {
            return Some(node);
        }
        state.nodes.push(node);
        self.changed.notify_one();
        None
    }

    /// A server has prolonged its lease.
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

    /// The holder gives the lock up: whether it was lost by then, and what there is to release. Once more,
    /// and there is nothing.
    pub fn give_up(&self) -> (Option<LostReason>, Vec<Node>) {
        let mut state = lock(&self.state);
        let reason = state.with(|hold, now, shares| hold.give_up(now, shares));
        self.changed.notify_one();
        (reason, std::mem::take(&mut state.nodes))
    }

    /// Tells the holder when the lock is lost. Ends when there is nothing to watch any more.
    pub async fn watch(held: Weak<Self>) {
        let Some(held) = held.upgrade() else {
            return;
        };
        while let Some(LeaseStatus { calm, tokens }) = held.look() {
            let mut losses: FuturesUnordered<_> = tokens
                .into_iter()
                .map(CancellationToken::cancelled_owned)
                .collect();
            tokio::select! {
                () = held.changed.notified() => {}
                Some(()) = losses.next() => {}
                () = sleep(calm.min(MAX_SLEEP)) => {}
            }
        }
    }

    fn look(&self) -> Option<LeaseStatus> {
        self.tell_loss();
        lock(&self.state).lease_status()
    }

    /// If the lock is lost, and that is new, tells the holder, and gives back what is left of it: too few servers
    /// keep others out in vain.
    pub fn tell_loss(&self) {
        let mut state = lock(&self.state);
        let Some(reason) = state.with(|hold, now, shares| hold.on_time(now, shares)) else {
            return;
        };
        let useless = std::mem::take(&mut state.nodes);
        drop(state);
        let key = String::from_utf8_lossy(&self.key);
        tracing::error!(%key, owner = %self.owner, %reason, "lock on a majority of servers lost");
        self.lost.cancel();
        drop(useless);
    }
}

impl State {
    fn with<T>(&mut self, look: impl FnOnce(&mut Hold, BootInstant, &[NodeLease]) -> T) -> T {
        let shares: Vec<NodeLease> = self.nodes.iter().map(Node::share).collect();
        look(&mut self.hold, BootInstant::now(), &shares)
    }

    fn lease_status(&mut self) -> Option<LeaseStatus> {
        if !self.hold.is_open() {
            return None;
        }
        let calm = self.with(|hold, now, shares| hold.remaining(now, shares));
        let tokens = self.nodes.iter().map(|node| node.guard.token());
        Some(LeaseStatus {
            calm,
            tokens: tokens.filter(|token| !token.is_cancelled()).collect(),
        })
    }
}
