//! `blocking_*` methods, in the manner of tokio: the same locks and guards, for threads outside async code.
//!
//! The renewal thread drives the connections; the calling thread blocks until there is a reply. In async code, use the
//! async methods.

mod block_on;

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::command::LockInfo;
use crate::error::{Error, LostReason};
use crate::guard::Guard;
use crate::locks::{Lock, Locks};
use crate::owner::Owner;
use crate::parts::GuardParts;
use crate::run::RunError;
pub(crate) use block_on::block_on;

/// For threads outside async code: the feature `blocking`.
impl Locks {
    /// [`Locks::acquire`] for threads outside async code.
    ///
    /// ```no_run
    /// use redis_dlock_quorum::Locks;
    ///
    /// # fn main() -> Result<(), redis_dlock_quorum::Error> {
    /// let locks = Locks::open("redis://127.0.0.1/")?;
    /// let guard = locks.blocking_acquire("orders:42")?;
    /// println!("fence {}", guard.fence());
    /// guard.blocking_release()?;
    /// # Ok(()) }
    /// ```
    pub fn blocking_acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).blocking_acquire()
    }

    /// [`Locks::try_acquire`] for threads outside async code.
    pub fn blocking_try_acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).blocking_try_acquire()
    }

    /// [`Locks::check`] for threads outside async code.
    pub fn blocking_check(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        block_on(self.runtime(), self.check(key))
    }

    /// [`Locks::adopt`] for threads outside async code.
    pub fn blocking_adopt(&self, parts: GuardParts) -> Result<Guard, Error> {
        block_on(self.runtime(), self.adopt(parts))
    }

    /// [`Locks::settle`] for threads outside async code: `false` if that takes longer than `limit`.
    pub fn blocking_settle(&self, limit: Duration) -> bool {
        let settled = async { timeout(limit, self.settle()).await };
        block_on(self.runtime(), settled).is_ok()
    }

    fn runtime(&self) -> &Handle {
        self.client.renewal_thread.runtime()
    }
}

/// For threads outside async code: the feature `blocking`.
impl Lock {
    /// [`Lock::acquire`] for threads outside async code.
    pub fn blocking_acquire(&self) -> Result<Guard, Error> {
        block_on(self.runtime(), self.acquire())
    }

    /// [`Lock::try_acquire`] for threads outside async code.
    pub fn blocking_try_acquire(&self) -> Result<Guard, Error> {
        block_on(self.runtime(), self.try_acquire())
    }

    /// [`Lock::run`] for threads outside async code. Nothing cancels the work when the lock is lost: have it check
    /// [`Guard::is_held`] now and then.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::run`].
    pub fn blocking_run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
        self.blocking_acquire()
            .map_err(RunError::NotAcquired)?
            .blocking_run(work)
    }

    /// [`Lock::current_owner`] for threads outside async code.
    pub fn blocking_current_owner(&self) -> Result<Option<Owner>, Error> {
        block_on(self.runtime(), self.current_owner())
    }

    /// [`Lock::info`] for threads outside async code.
    pub fn blocking_info(&self) -> Result<Option<LockInfo>, Error> {
        block_on(self.runtime(), self.info())
    }

    fn runtime(&self) -> &Handle {
        self.client.renewal_thread.runtime()
    }
}

/// For threads outside async code: the feature `blocking`.
impl Guard {
    /// [`Guard::lost`] for threads outside async code.
    pub fn blocking_lost(&self) -> LostReason {
        block_on(self.runtime(), self.lost())
    }

    /// [`Guard::extend`] for threads outside async code.
    pub fn blocking_extend(&self, lease: Duration) -> Result<Duration, Error> {
        block_on(self.runtime(), self.extend(lease))
    }

    /// [`Guard::run`] for threads outside async code. Nothing cancels the work when the lock is lost: have it check
    /// [`Guard::is_held`] now and then.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::run`].
    pub fn blocking_run<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, RunError<T>> {
        let done = work(&self);
        block_on(&self.runtime().clone(), self.finish(done))
    }

    /// [`Guard::release`] for threads outside async code.
    pub fn blocking_release(self) -> Result<u64, Error> {
        block_on(&self.runtime().clone(), self.release())
    }

    /// [`Guard::release_at_once`] for threads outside async code.
    pub fn blocking_release_at_once(self) -> Result<u64, Error> {
        block_on(&self.runtime().clone(), self.release_at_once())
    }
}
