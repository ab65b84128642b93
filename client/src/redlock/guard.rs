use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::held::{Held, Node};
use super::quorum::Quorum;
use super::round::{by_majority, by_one};
use crate::error::{Error, LostReason, NodeFailure};
use crate::owner::Owner;
use crate::renewal::RenewalThread;
use crate::run::{RunError, after_release};

/// A loss that a server reports is noticed within this time after the grant, and at once later.
const MAX_IDLE_CHECK: Duration = Duration::from_secs(1);

/// A lock that is held on a majority of servers. Release it with [`Guard::release`].
///
/// Dropping a guard releases the lock in the background: at once, without blocking, on any thread, with or without a
/// runtime, and also during a panic. It has no fencing token: [the module](crate::redlock) says why.
#[must_use = "a guard that is dropped immediately releases the lock immediately"]
pub struct Guard {
    held: Arc<Held>,
    quorum: Quorum,
    node_timeout: Duration,
    #[cfg(feature = "blocking")]
    runtime: tokio::runtime::Handle,
}

impl Guard {
    /// The renewal thread watches the hold from before the first renewal on, by which a server may report a loss. Most
    /// guards are gone by then.
    pub(super) fn new(
        renewal_thread: &RenewalThread,
        quorum: Quorum,
        held: Arc<Held>,
        node_timeout: Duration,
    ) -> Self {
        let quiet_for = (held.remaining() / 4).min(MAX_IDLE_CHECK);
        let watched = Arc::downgrade(&held);
        renewal_thread.runtime().spawn(async move {
            sleep(quiet_for).await;
            Held::watch(watched).await;
        });
        Self {
            held,
            quorum,
            node_timeout,
            #[cfg(feature = "blocking")]
            runtime: renewal_thread.runtime().clone(),
        }
    }

    pub(super) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// The key of the lock.
    pub fn key(&self) -> &[u8] {
        &self.held.key
    }

    /// The owner.
    pub fn owner(&self) -> &Owner {
        &self.held.owner
    }

    /// How long the lock is held for certain without further renewal. Zero when it is lost.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Whether the lock is held for certain. Checks the clock only, nothing is sent.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Why the lock is lost; `None` while it is held. [`LostReason::NotHeld`]: too many of the servers report it.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.held.lost_reason()
    }

    /// Resolves when the lock is lost, at the local deadline at the latest, even if the servers are unresponsive.
    pub async fn lost(&self) -> LostReason {
        self.held.token().cancelled().await;
        self.lost_reason().unwrap_or(LostReason::LeaseExpired)
    }

    /// The runtime of the renewal thread.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Releases the lock after work under it.
    pub(crate) async fn finish<T>(self, done: T) -> Result<T, RunError<T>> {
        after_release(done, self.release().await)
    }

    /// Cancelled when the lock is lost, not when it is released. Each call returns another child token: cancelling it
    /// affects no other.
    pub fn token(&self) -> CancellationToken {
        self.held.token().child_token()
    }

    /// Extends the lease on all servers to at least `lease` from now, never shortens it, and returns what remains. A
    /// majority is enough; the others continue in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the lock is lost. [`Error::NoQuorum`]: too few servers agreed; the leases are
    /// unchanged.
    pub async fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        if let Some(reason) = self.lost_reason() {
            return Err(Error::Lost(reason));
        }
        let requests = self
            .held
            .nodes()
            .into_iter()
            .map(|node| self.extend_on(node, lease));
        let outcome = by_majority(self.quorum, requests).await;
        match self.lost_reason() {
            Some(reason) => Err(Error::Lost(reason)),
            None => outcome.map(|()| self.remaining()),
        }
    }

    /// Releases the lock on all servers. A majority is enough; the others continue in the background.
    ///
    /// `Ok` also means that the lock was held until now.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the lock was lost before the release. [`Error::NoQuorum`]: too few servers responded; the
    /// release is retried in the background until their leases expire.
    pub async fn release(self) -> Result<(), Error> {
        let (reason, nodes) = self.held.give_up();
        if let Some(reason) = reason {
            // Dropped, what there may be left is released.
            return Err(Error::Lost(reason));
        }
        let requests = nodes.into_iter().map(|node| self.release_on(node));
        by_majority(self.quorum, requests).await
    }

    fn extend_on(
        &self,
        node: Node,
        lease: Duration,
    ) -> impl Future<Output = Result<(), NodeFailure>> + use<> {
        let (held, node_timeout) = (Arc::clone(&self.held), self.node_timeout);
        async move {
            let outcome = by_one(node.address.clone(), node_timeout, node.guard.extend(lease)).await;
            match &outcome {
                Ok(_) => held.note_lease(&node, lease),
                Err(_) => held.notify_loss(),
            }
            outcome.map(drop)
        }
    }

    fn release_on(&self, node: Node) -> impl Future<Output = Result<(), NodeFailure>> + use<> {
        let address = node.address.clone();
        let node_timeout = self.node_timeout;
        let release = async move {
            // An extension may still be pending on a slow server: dropped with it, the guard is released.
            let guard = node.into_guard().ok_or_else(Error::no_response)?;
            guard.release().await.map(drop)
        };
        by_one(address, node_timeout, release)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // What is dropped there is released in the background.
        drop(self.held.give_up());
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("owner", self.owner())
            .field("remaining", &self.remaining())
            .finish()
    }
}
