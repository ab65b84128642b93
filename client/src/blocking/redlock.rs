//! Locks on a majority of several independent servers, for threads that block: the names, the promises and
//! the limits are those of [`crate::redlock`].
//!
//! ```no_run
//! use redis_dlock_client::blocking::redlock;
//!
//! # fn work() -> Result<(), redis_dlock_client::Error> {
//! let servers = ["redis://10.0.0.1/", "redis://10.0.1.1/", "redis://10.0.2.1/"];
//! let locks = redlock::Locks::open(servers)?;
//! let guard = locks.acquire("orders:42")?;
//! // ... as long as guard.is_held()
//! guard.release()?;
//! # Ok(()) }
//! ```

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::block_on::{block_on, block_until_lost};
use crate::connect::Address;
use crate::redlock;
use crate::{Error, LostReason, Owner, Settings};

/// All locks of several independent servers. See [`redlock::Locks`].
#[derive(Clone)]
pub struct Locks {
    locks: redlock::Locks,
}

/// One lock, and how it is to be acquired. See [`redlock::Lock`].
#[derive(Clone)]
pub struct Lock {
    lock: redlock::Lock,
}

/// A lock that is held on a majority of servers. See [`redlock::Guard`].
#[must_use = "a guard that is dropped at once gives the lock back at once"]
pub struct Guard {
    guard: redlock::Guard,
    runtime: Handle,
}

impl Locks {
    /// See [`redlock::Locks::open`].
    pub fn open<A: TryInto<Address>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        Self::with(addresses, Settings::default())
    }

    /// See [`redlock::Locks::with`].
    pub fn with<A: TryInto<Address>>(
        addresses: impl IntoIterator<Item = A>,
        settings: Settings,
    ) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        let locks = redlock::Locks::with(addresses, settings)?;
        Ok(Self { locks })
    }

    /// One of the locks.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock {
            lock: self.locks.lock(key),
        }
    }

    /// Acquires a lock, with the default options. See [`redlock::Lock::acquire`].
    pub fn acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).acquire()
    }

    /// Acquires a lock if it is free, with the default options. See [`redlock::Lock::try_acquire`].
    pub fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).try_acquire()
    }
}

impl Lock {
    /// See [`redlock::Lock::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|lock| lock.lease(lease))
    }

    /// See [`redlock::Lock::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|lock| lock.wait(wait))
    }

    /// See [`redlock::Lock::shared`].
    pub fn shared(self) -> Self {
        self.with(redlock::Lock::shared)
    }

    /// See [`redlock::Lock::auto_renew`].
    pub fn auto_renew(self, renew: bool) -> Self {
        self.with(|lock| lock.auto_renew(renew))
    }

    /// See [`redlock::Lock::max_hold`].
    pub fn max_hold(self, time: Duration) -> Self {
        self.with(|lock| lock.max_hold(time))
    }

    /// See [`redlock::Lock::node_timeout`].
    pub fn node_timeout(self, timeout: Duration) -> Self {
        self.with(|lock| lock.node_timeout(timeout))
    }

    /// See [`redlock::Lock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Guard, Error> {
        self.guarded(self.lock.try_acquire())
    }

    /// See [`redlock::Lock::acquire`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.guarded(self.lock.acquire())
    }

    /// Runs `work` under the lock, and releases it. Nothing can cancel the work: let it look at
    /// [`Guard::is_held`] from time to time.
    ///
    /// # Errors
    ///
    /// Those of [`redlock::Lock::run`].
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.acquire()?;
        let done = work(&guard);
        match guard.release() {
            Err(error @ Error::Lost(_)) => Err(error),
            // The work was done while the lock was held. That it may not be free yet is another matter.
            _ => Ok(done),
        }
    }

    fn guarded(
        &self,
        acquisition: impl Future<Output = Result<redlock::Guard, Error>>,
    ) -> Result<Guard, Error> {
        let runtime = self.lock.runtime().clone();
        let guard = block_on(&runtime, acquisition)?;
        Ok(Guard { guard, runtime })
    }

    fn with(self, change: impl FnOnce(redlock::Lock) -> redlock::Lock) -> Self {
        Self {
            lock: change(self.lock),
        }
    }
}

impl Guard {
    /// See [`redlock::Guard::key`].
    pub fn key(&self) -> &[u8] {
        self.guard.key()
    }

    /// See [`redlock::Guard::owner`].
    pub fn owner(&self) -> &Owner {
        self.guard.owner()
    }

    /// See [`redlock::Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// See [`redlock::Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// See [`redlock::Guard::loss`].
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.guard.lost_reason()
    }

    /// Blocks until the lock is lost. See [`redlock::Guard::lost`].
    pub fn lost(&self) -> LostReason {
        block_until_lost(self.guard.lost_token(), || self.guard.lease_status())
    }

    /// See [`redlock::Guard::token`].
    pub fn token(&self) -> CancellationToken {
        self.guard.token()
    }

    /// See [`redlock::Guard::extend`].
    pub fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        block_on(&self.runtime, self.guard.extend(lease))
    }

    /// See [`redlock::Guard::release`].
    pub fn release(self) -> Result<(), Error> {
        block_on(&self.runtime, self.guard.release())
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.locks.fmt(f)
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock.fmt(f)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
