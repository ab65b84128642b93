//! The same for threads that block: same names, same rules.
//!
//! ```no_run
//! use redis_dlock_client::blocking::Locks;
//!
//! # fn main() -> Result<(), redis_dlock_client::Error> {
//! let locks = Locks::open("redis://127.0.0.1/")?;
//! let guard = locks.acquire("orders:42")?;
//! println!("fence {}", guard.fence());
//! guard.release()?;
//! # Ok(()) }
//! ```
//!
//! The thread that renews leases also carries the connections. A thread that calls these functions blocks
//! until there is an answer: in async code, use the other ones.

mod all;
mod block_on;
pub mod redlock;

use std::fmt;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::connect::Address;
use crate::raw::LockInfo;
use crate::{Error, LostReason, Owner, Settings};

pub use all::{Guards, acquire_all};
use block_on::{block_on, block_until_lost};

/// All locks of a server. See [`crate::Locks`].
#[derive(Clone)]
pub struct Locks {
    locks: crate::Locks,
}

/// One lock, and how it is to be acquired. See [`crate::Lock`].
#[derive(Clone)]
pub struct Lock {
    lock: crate::Lock,
}

/// A lock that is held. See [`crate::Guard`].
#[must_use = "a guard that is dropped at once gives the lock back at once"]
pub struct Guard {
    guard: crate::Guard,
    runtime: Handle,
}

impl Locks {
    /// See [`crate::Locks::open`].
    pub fn open<A: TryInto<Address>>(address: A) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        Self::with(address, Settings::default())
    }

    /// See [`crate::Locks::with`].
    pub fn with<A: TryInto<Address>>(address: A, settings: Settings) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        let locks = crate::Locks::with(address, settings)?;
        Ok(Self { locks })
    }

    /// One of the locks.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock {
            lock: self.locks.lock(key),
        }
    }

    /// Acquires a lock, with the default options. See [`crate::Lock::acquire`].
    pub fn acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).acquire()
    }

    /// Acquires a lock if it is free, with the default options. See [`crate::Lock::try_acquire`].
    pub fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).try_acquire()
    }
}

impl Lock {
    /// See [`crate::Lock::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|lock| lock.lease(lease))
    }

    /// See [`crate::Lock::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        self.with(|lock| lock.wait(wait))
    }

    /// See [`crate::Lock::shared`].
    pub fn shared(self) -> Self {
        self.with(crate::Lock::shared)
    }

    /// See [`crate::Lock::limit`].
    pub fn limit(self, limit: u32) -> Self {
        self.with(|lock| lock.limit(limit))
    }

    /// See [`crate::Lock::auto_renew`].
    pub fn auto_renew(self, renew: bool) -> Self {
        self.with(|lock| lock.auto_renew(renew))
    }

    /// See [`crate::Lock::max_hold`].
    pub fn max_hold(self, time: Duration) -> Self {
        self.with(|lock| lock.max_hold(time))
    }

    /// See [`crate::Lock::replicas`].
    pub fn replicas(self, replicas: u32, timeout: Duration) -> Self {
        self.with(|lock| lock.replicas(replicas, timeout))
    }

    /// See [`crate::Lock::fsynced`].
    pub fn fsynced(self, replicas: u32, timeout: Duration) -> Self {
        self.with(|lock| lock.fsynced(replicas, timeout))
    }

    /// See [`crate::Lock::owner`].
    pub fn owner(self, owner: impl Into<Owner>) -> Self {
        self.with(|lock| lock.owner(owner))
    }

    /// See [`crate::Lock::try_acquire`].
    pub fn try_acquire(&self) -> Result<Guard, Error> {
        self.guarded(self.lock.try_acquire())
    }

    /// See [`crate::Lock::acquire`].
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.guarded(self.lock.acquire())
    }

    /// Runs `work` under the lock, and releases it. Nothing can cancel the work: let it look at
    /// [`Guard::is_held`] from time to time.
    ///
    /// # Errors
    ///
    /// Those of [`crate::Lock::run`].
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.acquire()?;
        let done = work(&guard);
        if let Some(reason) = guard.lost_reason() {
            return Err(Error::Lost(reason));
        }
        match guard.release() {
            Err(error @ Error::Lost(_)) => Err(error),
            // The work was done while the lock was held. That it may not be free yet is another matter.
            _ => Ok(done),
        }
    }

    /// See [`crate::Lock::owner`].
    pub fn current_owner(&self) -> Result<Option<Owner>, Error> {
        block_on(self.lock.runtime(), self.lock.current_owner())
    }

    /// See [`crate::Lock::info`].
    pub fn info(&self) -> Result<Option<LockInfo>, Error> {
        block_on(self.lock.runtime(), self.lock.info())
    }

    fn guarded(
        &self,
        acquisition: impl Future<Output = Result<crate::Guard, Error>>,
    ) -> Result<Guard, Error> {
        let runtime = self.lock.runtime();
        block_on(runtime, acquisition).map(|guard| Guard::new(guard, runtime))
    }

    fn with(self, change: impl FnOnce(crate::Lock) -> crate::Lock) -> Self {
        Self {
            lock: change(self.lock),
        }
    }
}

impl Guard {
    fn new(guard: crate::Guard, runtime: &Handle) -> Self {
        Self {
            guard,
            runtime: runtime.clone(),
        }
    }

    /// See [`crate::Guard::key`].
    pub fn key(&self) -> &[u8] {
        self.guard.key()
    }

    /// See [`crate::Guard::owner`].
    pub fn owner(&self) -> &Owner {
        self.guard.owner()
    }

    /// See [`crate::Guard::fence`].
    pub fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// See [`crate::Guard::holds`].
    pub fn holds(&self) -> u64 {
        self.guard.holds()
    }

    /// See [`crate::Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// See [`crate::Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// See [`crate::Guard::loss`].
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.guard.lost_reason()
    }

    /// Blocks until the lock is lost. See [`crate::Guard::lost`].
    pub fn lost(&self) -> LostReason {
        block_until_lost(&self.guard.lost_token(), || self.guard.lease_status())
    }

    /// See [`crate::Guard::token`].
    pub fn token(&self) -> CancellationToken {
        self.guard.token()
    }

    /// See [`crate::Guard::extend`].
    pub fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        block_on(&self.runtime, self.guard.extend(lease))
    }

    /// See [`crate::Guard::release`].
    pub fn release(self) -> Result<u64, Error> {
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
