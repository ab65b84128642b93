//! `blocking_*` methods, for threads outside async code.

use std::time::Duration;

use tokio::time::timeout;

use super::{Guard, Lock, Locks, Mode};
use crate::blocking::block_on;
use crate::error::{Error, LostReason};
use crate::run::RunError;

/// For threads outside async code: the feature `blocking`.
impl Locks {
    /// [`Locks::acquire`] for threads outside async code.
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

    /// [`Locks::settle`] for threads outside async code: `false` if that takes longer than `limit`.
    pub fn blocking_settle(&self, limit: Duration) -> bool {
        let settled = async { timeout(limit, self.settle()).await };
        block_on(self.runtime(), settled).is_ok()
    }
}

/// For threads outside async code: the feature `blocking`.
impl<M: Mode> Lock<M> {
    /// [`Lock::acquire`] for threads outside async code.
    pub fn blocking_acquire(&self) -> Result<Guard<M>, Error> {
        block_on(self.runtime(), self.acquire())
    }

    /// [`Lock::try_acquire`] for threads outside async code.
    pub fn blocking_try_acquire(&self) -> Result<Guard<M>, Error> {
        block_on(self.runtime(), self.try_acquire())
    }

    /// [`Lock::run`] for threads outside async code. Nothing cancels the work when the lock is lost: have it check
    /// [`Guard::is_held`] now and then.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::run`].
    pub fn blocking_run<T>(&self, work: impl FnOnce(&Guard<M>) -> T) -> Result<T, RunError<T>> {
        let guard = self.blocking_acquire().map_err(RunError::NotAcquired)?;
        guard.blocking_run(work)
    }
}

/// For threads outside async code: the feature `blocking`.
impl<M: Mode> Guard<M> {
    /// [`Guard::lost`] for threads outside async code.
    pub fn blocking_lost(&self) -> LostReason {
        block_on(self.runtime(), self.lost())
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

    /// [`Guard::extend`] for threads outside async code.
    pub fn blocking_extend(&self, lease: Duration) -> Result<Duration, Error> {
        block_on(self.runtime(), self.extend(lease))
    }

    /// [`Guard::release`] for threads outside async code.
    pub fn blocking_release(self) -> Result<(), Error> {
        block_on(&self.runtime().clone(), self.release())
    }
}
