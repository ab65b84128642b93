//! A lock that is held on a majority of servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis_dlock_client::{CancellationToken, Lost, Owner};

use crate::error::{Error, RunError};
use crate::held::Held;

/// A lock that is held on a majority of servers. Release it with [`Guard::release`]; dropped, it is released in the
/// background. What is said of [the guard of one server](redis_dlock_client::Guard) applies to it too.
#[must_use = "a guard that is dropped immediately releases the lock immediately"]
pub struct Guard {
    held: Arc<Held>,
}

impl Guard {
    pub(crate) fn new(held: Arc<Held>) -> Self {
        Self { held }
    }

    /// The key of the lock.
    pub fn key(&self) -> &[u8] {
        &self.held.key
    }

    /// The owner of this acquisition.
    pub fn owner(&self) -> &Owner {
        &self.held.owner
    }

    /// The fencing token, larger than that of every earlier holder; `None` for a shared lock.
    pub fn fence(&self) -> Option<u64> {
        Some(self.held.fence).filter(|fence| *fence > 0)
    }

    /// How long the lock is held for certain without further renewal: as long as a majority of its leases lasts.
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Whether the lock is held for certain.
    pub fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Resolves when too few servers are left. Cancel safe.
    pub async fn lost(&self) -> Lost {
        // Nothing else cancels it while there is a guard.
        self.held.token.cancelled().await;
        self.held.lost().unwrap_or(Lost::LeaseExpired)
    }

    /// A token that is cancelled when the lock is lost or released.
    pub fn token(&self) -> CancellationToken {
        self.held.token.child_token()
    }

    /// Extends the lease to the longer of what remains and `lease`, on a majority at least, and returns what remains.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::NoQuorum`]: too few servers replied, and the lock may still be held.
    pub async fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        self.held.servers.thread.lend(self.held.extend(lease)).await
    }

    /// Releases the lock everywhere. `Ok` means that a majority held it until then.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: it may have been lost before. [`Error::NoQuorum`]: too few servers replied. It is released in the
    /// background, or free when its leases expire.
    pub async fn release(self) -> Result<(), Error> {
        self.held.servers.thread.lend(self.held.release()).await
    }

    pub(crate) async fn run<T, E>(
        self,
        work: impl AsyncFnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, RunError<T, E>> {
        let done = tokio::select! {
            biased;
            lost = self.lost() => return Err(RunError::Cancelled(lost)),
            done = work(&self) => done.map_err(RunError::Failed)?,
        };
        if let Some(lost) = self.held.lost() {
            return Err(RunError::Unprotected { lost, done });
        }
        match self.release().await {
            Err(Error::Lost(lost)) => Err(RunError::Unprotected { lost, done }),
            // The work was done while the lock was held, even if the lock may not be free yet.
            _ => Ok(done),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.held.drop_holds();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("owner", self.owner())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish()
    }
}
