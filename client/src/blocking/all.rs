use std::fmt;
use std::thread;
use std::time::Duration;

use super::block_on::{block_on, block_until_any_lost};
use super::{Guard, Lock};
use crate::locks::release_all;
use crate::{Error, LostReason};

/// Several locks that are held together. See [`acquire_all`].
#[must_use = "guards that are dropped at once give the locks back at once"]
pub struct Guards {
    guards: Vec<Guard>,
}

/// Acquires several locks of one [`Locks`](super::Locks), all or none. See [`crate::acquire_all`].
///
/// ```no_run
/// # fn transfer() -> Result<(), redis_dlock_client::Error> {
/// use redis_dlock_client::blocking::{Locks, acquire_all};
///
/// let locks = Locks::open("redis://127.0.0.1/")?;
/// let guards = acquire_all([locks.lock("account:2"), locks.lock("account:1")])?;
/// // ... as long as guards.is_held()
/// guards.release()?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`crate::acquire_all`].
pub fn acquire_all(locks: impl IntoIterator<Item = Lock>) -> Result<Guards, Error> {
    let locks: Vec<crate::Lock> = locks.into_iter().map(|lock| lock.lock).collect();
    let Some(first) = locks.first() else {
        return Ok(Guards { guards: Vec::new() });
    };
    let runtime = first.runtime().clone();
    let guards = block_on(&runtime, crate::acquire_all(locks))?;
    let guards = guards.into_guards().into_iter();
    let guards = guards.map(|guard| Guard::new(guard, &runtime)).collect();
    Ok(Guards { guards })
}

impl Guards {
    /// The single guards, sorted by the names of their locks.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// See [`crate::Guards::remaining`].
    pub fn remaining(&self) -> Duration {
        let each = self.guards.iter().map(Guard::remaining);
        each.min().unwrap_or(Duration::MAX)
    }

    /// See [`crate::Guards::is_held`].
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// See [`crate::Guards::loss`].
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.guards.iter().find_map(Guard::lost_reason)
    }

    /// Blocks until one of the locks is lost.
    pub fn lost(&self) -> LostReason {
        if self.guards.is_empty() {
            // There is none to lose.
            loop {
                thread::park();
            }
        }
        let guards = || self.guards.iter().map(|guard| &guard.guard);
        let tokens: Vec<_> = guards().map(|guard| guard.lost_token()).collect();
        let reason = block_until_any_lost(&tokens, || {
            guards().try_fold(Duration::MAX, |least, guard| Ok(least.min(guard.lease_status()?)))
        });
        for (guard, token) in guards().zip(&tokens) {
            if guard.lost_reason().is_some() {
                token.cancel();
            }
        }
        reason
    }

    /// See [`crate::Guards::release`].
    pub fn release(self) -> Result<(), Error> {
        let Some(runtime) = self.guards.first().map(|first| first.runtime.clone()) else {
            return Ok(());
        };
        let guards = self.guards.into_iter().map(|guard| guard.guard).collect();
        block_on(&runtime, release_all(guards))
    }
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.guards).finish()
    }
}
