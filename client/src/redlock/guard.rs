use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::error::NodeFailure;
use super::held::{Held, Node};
use super::quorum::Quorum;
use super::round::{by_majority, by_one};
use crate::error::Error;
use crate::error::LostReason;
use crate::lost::{LeaseStatus, lost};
use crate::owner::Owner;
use crate::renewal::RenewalThread;

/// What a server tells is acted on after so long, if not at once.
const MAX_IDLE_CHECK: Duration = Duration::from_secs(1);

/// A lock that is held on a majority of servers. Give it back with [`Guard::release`].
///
/// Dropped, it gives the lock back in the background: at once, without blocking, in any thread, with or
/// without a runtime, also during a panic. It has no fencing token: see [the module](crate::redlock) for
/// the reason.
#[must_use = "a guard that is dropped at once gives the lock back at once"]
pub struct Guard {
    held: Arc<Held>,
    quorum: Quorum,
    node_timeout: Duration,
    #[cfg(feature = "blocking")]
    runtime: tokio::runtime::Handle,
}

impl Guard {
    /// Puts a guard before a hold, which the background of `keeper` watches: from before the first renewal on,
    /// by which a server may tell of a loss. Most guards are gone by then, and have woken nobody.
    pub(super) fn new(
        renewal_thread: &RenewalThread,
        quorum: Quorum,
        held: Arc<Held>,
        node_timeout: Duration,
    ) -> Self {
        let calm = (held.remaining() / 4).min(MAX_IDLE_CHECK);
        let watched = Arc::downgrade(&held);
        renewal_thread.runtime().spawn(async move {
            sleep(calm).await;
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

    /// The name of the lock.
    pub fn key(&self) -> &[u8] {
        &self.held.key
    }

    /// Who holds it.
    pub fn owner(&self) -> &Owner {
        &self.held.owner
    }

    /// For how long the lock is certainly held, if nothing is renewed. Zero when it is lost.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Whether the lock is certainly held. A look at the clock, nothing is sent.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Why the lock is lost; `None` as long as it is held. [`LostReason::NotHeld`]: too many of the servers say so.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.held.lost_reason()
    }

    /// Resolves when the lock is lost, at the local deadline at the latest, even when the servers are silent.
    pub async fn lost(&self) -> LostReason {
        lost(self.lost_token(), || self.lease_status()).await
    }

    /// The runtime of the renewal thread.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        &self.runtime
    }

    /// Releases the lock after work under it.
    pub(crate) async fn finish<T>(self, done: T) -> Result<T, Error> {
        match self.release().await {
            Err(error @ Error::Lost(_)) => Err(error),
            // The work was done while the lock was held, even if the lock may not be free yet.
            _ => Ok(done),
        }
    }

    pub(crate) fn lease_status(&self) -> LeaseStatus {
        self.lost_reason().map_or_else(|| Ok(self.remaining()), Err)
    }

    /// Cancelled when the lock is lost. Not when it is released. Each call gives another token: who cancels one
    /// tells nobody else.
    pub fn token(&self) -> CancellationToken {
        self.lost_token().child_token()
    }

    /// Cancelled only by who finds out that the lock is lost.
    pub(crate) fn lost_token(&self) -> &CancellationToken {
        self.held.token()
    }

    /// Prolongs the lease on all servers to at least `lease` from now, never shortens it, and tells what then
    /// remains. It is done when a majority has done so; the others go on in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the lock is lost. [`Error::NoQuorum`]: too few servers agreed; the lock is held
    /// as long as it was.
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

    /// Gives the lock back on all servers. It is done when a majority has answered; the others go on in the
    /// background.
    ///
    /// `Ok` also means that the lock was held until now.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the lock was lost before it was given back. [`Error::NoQuorum`]: too few servers
    /// answered; the others are tried again in the background, until their leases end.
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
        let (held, patience) = (Arc::clone(&self.held), self.node_timeout);
        async move {
            let outcome = by_one(node.address.clone(), patience, node.guard.extend(lease)).await;
            match &outcome {
                Ok(_) => held.note_lease(&node, lease),
                Err(_) => held.tell_loss(),
            }
            outcome.map(drop)
        }
    }

    fn release_on(&self, node: Node) -> impl Future<Output = Result<(), NodeFailure>> + use<> {
        let address = node.address.clone();
        let patience = self.node_timeout;
        let release = async move {
            // An extension may still be under way on a slow server: it is released when that has been dropped.
            let guard = node.into_guard().ok_or_else(Error::no_response)?;
            guard.release().await.map(drop)
        };
        by_one(address, patience, release)
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
