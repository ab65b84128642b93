use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use super::held::Held;
use super::mode::{Exclusive, Mode};
use super::release::{release, release_in_background};
use crate::error::{Error, LostReason, NodeFailure};
use crate::owner::Owner;
use crate::run::{RunError, after_release};

/// A lock that is held on a majority of servers. Release it with [`Guard::release`].
///
/// Dropping a guard releases the lock in the background: at once, without blocking, on any thread, with or without a
/// runtime, and also during a panic. See [`Locks::settle`](crate::quorum::Locks::settle).
///
/// Only the guard of an exclusive lock, `Guard<Exclusive>` or short `Guard`, has a [fence](Guard::fence).
#[must_use = "a guard that is dropped immediately releases the lock immediately"]
pub struct Guard<M: Mode = Exclusive> {
    held: Arc<Held>,
    mode: PhantomData<M>,
}

impl Guard<Exclusive> {
    /// The fencing token, 1 to 2^53 - 1: larger for every later holder of this lock. Send it along with every write under
    /// the lock.
    pub fn fence(&self) -> u64 {
        self.held.fence
    }
}

impl<M: Mode> Guard<M> {
    pub(super) fn new(held: Arc<Held>) -> Self {
        Self {
            held,
            mode: PhantomData,
        }
    }

    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// The key of the lock.
    pub fn key(&self) -> &[u8] {
        &self.held.identity.key
    }

    /// The owner, a unique one.
    pub fn owner(&self) -> &Owner {
        &self.held.identity.owner
    }

    /// How long the lock is held for certain without further renewal. Zero when it is lost.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Whether the lock is held for certain. Checks the clock only, nothing is sent.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Why the lock is lost; `None` while it is held. [`LostReason::NotHeld`]: too many servers report it.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.held.lost_reason()
    }

    /// Resolves when the lock is lost: at the local deadline at the latest, even if the servers are unresponsive.
    /// What is left of the lock on a minority is kept, without renewal, until the guard is dropped: drop it when the work
    /// has stopped.
    pub async fn lost(&self) -> LostReason {
        // Nothing else cancels it while there is a guard.
        self.held.token().cancelled().await;
        self.lost_reason().unwrap_or(LostReason::LeaseExpired)
    }

    /// Cancelled when the lock is lost, and when the guard is released or dropped. Each call returns another child token:
    /// cancelling it affects no other.
    pub fn token(&self) -> CancellationToken {
        self.held.token().child_token()
    }

    /// Extends the lease on all servers to at least `lease` from now, never shortens it, and returns what remains. A
    /// majority is enough; the others continue in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is lost. [`Error::NoQuorum`]: too few servers agreed; the lock is held until the leases
    /// end that it had.
    pub async fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        let majority = self.held.servers.majority;
        let extend = |member: Arc<crate::guard::Guard>| async move {
            let extended = member.extend(lease).await;
            (member.server(), extended)
        };
        let mut extensions: FuturesUnordered<_> = self.held.members().into_iter().map(extend).collect();
        let (mut agreed, mut failures) = (0, Vec::new());
        while agreed < majority.needed()
            && let Some((server, extended)) = extensions.next().await
        {
            match extended {
                Ok(_) => agreed += 1,
                Err(error) => failures.push(NodeFailure::at(&server, error)),
            }
        }
        let rest = extensions.for_each(|_| std::future::ready(()));
        self.held.servers.renewal_thread().spawn_here(rest);
        match self.lost_reason() {
            Some(reason) => Err(Error::Lost(reason)),
            None if agreed >= majority.needed() => Ok(self.remaining()),
            None => Err(majority.missed(agreed, failures)),
        }
    }

    /// Releases the lock on all servers. A majority is enough; the others continue in the background.
    ///
    /// `Ok` means that the lock was held until now: a majority of servers had checked it.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the lock was lost before the release. [`Error::NoQuorum`]: too few servers responded to know; the
    /// release is retried in the background until their leases expire.
    pub async fn release(self) -> Result<(), Error> {
        release(&self.held).await
    }

    /// Runs `work` under the lock, then releases it. When the lock is lost, the work is cancelled: its future is dropped
    /// at its next `await`.
    ///
    /// # Errors
    ///
    /// [`RunError::Cancelled`] and [`RunError::Unprotected`]: the lock was lost.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T, RunError<T>> {
        let done = tokio::select! {
            biased;
            reason = self.lost() => return Err(RunError::Cancelled(reason)),
            done = work(&self) => done,
        };
        self.finish(done).await
    }

    pub(crate) async fn finish<T>(self, done: T) -> Result<T, RunError<T>> {
        after_release(done, self.release().await)
    }

    /// The runtime of the renewal thread.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.held.servers.renewal_thread().runtime()
    }
}

impl<M: Mode> Drop for Guard<M> {
    fn drop(&mut self) {
        release_in_background(&self.held);
    }
}

impl<M: Mode> fmt::Debug for Guard<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("owner", self.owner())
            .field("fence", &self.held.fence)
            .field("remaining", &self.remaining())
            .finish()
    }
}
