//! Several locks at once, for threads.

use std::time::Duration;

use tokio::runtime::Handle;

use super::block_on;
use crate::error::{Error, LostReason};
use crate::guard::Guard;
use crate::locks::Lock;
use crate::multi::{Guards, acquire_all};
use crate::run::{RunError, after_release};

/// [`acquire_all`] for threads outside async code.
///
/// ```no_run
/// # fn transfer() -> Result<(), redis_dlock_client::Error> {
/// use redis_dlock_client::{Locks, blocking_acquire_all};
///
/// let locks = Locks::open("redis://127.0.0.1/")?;
/// let guards = blocking_acquire_all([locks.lock("account:2"), locks.lock("account:1")])?;
/// // ... while guards.is_held()
/// guards.blocking_release()?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`acquire_all`].
pub fn blocking_acquire_all(locks: impl IntoIterator<Item = Lock>) -> Result<Guards, Error> {
    let locks: Vec<Lock> = locks.into_iter().collect();
    let runtime = locks
        .first()
        .map(|lock| lock.client.renewal_thread.runtime().clone());
    block_on(runtime.as_ref(), acquire_all(locks))
}

/// For threads outside async code: the feature `blocking`.
impl Guards {
    /// [`Guards::lost`] for threads outside async code.
    pub fn blocking_lost(&self) -> LostReason {
        block_on(self.runtime(), self.lost())
    }

    /// [`Guards::extend`] for threads outside async code.
    pub fn blocking_extend(&self, lease: Duration) -> Result<Duration, Error> {
        block_on(self.runtime(), self.extend(lease))
    }

    /// [`Guards::run`] for threads outside async code. Nothing cancels the work when a lock is lost: have it check
    /// [`Guards::is_held`] now and then.
    ///
    /// # Errors
    ///
    /// Those of [`Guards::run`].
    pub fn blocking_run<T>(self, work: impl FnOnce(&Self) -> T) -> Result<T, RunError<T>> {
        let done = work(&self);
        after_release(done, self.blocking_release())
    }

    /// [`Guards::release`] for threads outside async code.
    pub fn blocking_release(self) -> Result<(), Error> {
        let runtime = self.runtime().cloned();
        block_on(runtime.as_ref(), self.release())
    }

    fn runtime(&self) -> Option<&Handle> {
        self.guards().first().map(Guard::runtime)
    }
}
