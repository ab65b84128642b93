use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::clock::BootInstant;
use crate::error::{Error, LostReason};
use crate::guard::Guard;
use crate::locks::Lock;
use crate::owner::Owner;
use crate::run::{RunError, after_release};

/// Several locks that are held together. See [`acquire_all`].
#[must_use = "guards that are dropped immediately release the locks immediately"]
#[derive(Default)]
pub struct Guards {
    guards: Vec<Guard>,
}

/// Acquires several locks of one [`Locks`](crate::Locks), all or none.
///
/// Hold several locks briefly, and few of them: whoever waits for the second one holds the first, and so lets others wait
/// that need only that one. Such convoys cost far more throughput than the locks themselves.
///
/// The locks are acquired one after the other, in the order of their keys: so callers cannot deadlock each other, in
/// whatever order they name the locks. Each lock is acquired with its own options; the longest [wait](Lock::wait)
/// applies to all of them together. Locks that are held already are renewed meanwhile, and released if another one is
/// not granted or the future is dropped.
///
/// Locks without an explicit owner get a new one, the same for all, so that the server detects deadlocks with callers
/// that use another order.
///
/// ```no_run
/// # async fn transfer() -> Result<(), redis_dlock_client::Error> {
/// use redis_dlock_client::{Locks, acquire_all};
///
/// let locks = Locks::open("redis://127.0.0.1/")?;
/// let guards = acquire_all([locks.lock("account:2"), locks.lock("account:1")]).await?;
/// // ... while guards.is_held()
/// guards.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`Lock::acquire`], for the first lock that was not granted. [`Error::Lost`]: one was lost before
/// the last one was granted. [`Error::Invalid`]: a lock is named twice, or the locks belong to several servers.
pub async fn acquire_all(locks: impl IntoIterator<Item = Lock>) -> Result<Guards, Error> {
    let locks = sorted(locks.into_iter().enumerate().collect())?;
    let begun = BootInstant::now();
    let wait = locks
        .iter()
        .map(|(_, lock)| lock.options.wait)
        .max()
        .unwrap_or_default();
    let owner = Owner::unique();
    let mut guards = Vec::with_capacity(locks.len());
    for (index, mut lock) in locks {
        lock.owner.get_or_insert_with(|| owner.clone());
        lock.options.wait = wait.saturating_sub(BootInstant::now().since(begun));
        if wait == Duration::MAX {
            lock.options.wait = wait;
        }
        let granted = lock.acquire().await.map_err(|error| match error {
            // The time was up before its turn.
            Error::Busy | Error::HeldBy(_) if !wait.is_zero() => {
                Error::timeout(&lock.key, BootInstant::now().since(begun), None)
            }
            error => error,
        });
        guards.push((index, granted?));
    }
    guards.sort_unstable_by_key(|(index, _)| *index);
    let guards = Guards {
        guards: guards.into_iter().map(|(_, guard)| guard).collect(),
    };
    match guards.lost_reason() {
        None => Ok(guards),
        Some(reason) => Err(Error::Lost(reason)),
    }
}

/// In the order that all callers use.
fn sorted(mut locks: Vec<(usize, Lock)>) -> Result<Vec<(usize, Lock)>, Error> {
    locks.sort_by(|(_, one), (_, other)| one.key.cmp(&other.key));
    for pair in locks.windows(2) {
        let [(_, one), (_, other)] = pair else { continue };
        if !Arc::ptr_eq(&one.client, &other.client) {
            return Err(Error::Invalid(
                "only locks of one `Locks` can be acquired together, because servers have no order".into(),
            ));
        }
        if one.key == other.key {
            let key = String::from_utf8_lossy(&one.key);
            return Err(Error::Invalid(format!(
                "{key} is named twice among the locks to acquire: name it once"
            )));
        }
    }
    Ok(locks)
}

impl Guards {
    /// The guards, in the order in which the locks were named.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The guard of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.key() == key.as_ref())
    }

    /// How long all locks are held for certain without further renewal. Zero when one is lost.
    pub fn remaining(&self) -> Duration {
        let each = self.guards.iter().map(Guard::remaining);
        each.min().unwrap_or(Duration::MAX)
    }

    /// Whether all locks are held for certain.
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// Why one of the locks is lost; `None` while all are held.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.guards.iter().find_map(Guard::lost_reason)
    }

    /// Resolves when one of the locks is lost.
    pub async fn lost(&self) -> LostReason {
        first_loss(&self.guards).await
    }

    /// Cancelled by the renewal thread when one of the locks is lost, and when the guards are released or dropped: see
    /// [`Guard::token`].
    pub fn token(&self) -> CancellationToken {
        let any = CancellationToken::new();
        let each = self.guards.iter().map(|guard| guard.token().cancelled_owned());
        let mut each: FuturesUnordered<_> = each.collect();
        if let Some(guard) = self.guards.first() {
            let any = any.clone();
            guard.runtime().spawn(async move {
                each.next().await;
                any.cancel();
            });
        }
        any
    }

    /// Extends all leases, at the same time: see [`Guard::extend`]. Returns what remains of the shortest one.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::extend`], for the first lock that failed. The others may be extended all the same.
    pub async fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        let mut each: FuturesUnordered<_> = self.guards.iter().map(|guard| guard.extend(lease)).collect();
        while let Some(extended) = each.next().await {
            extended?;
        }
        Ok(self.remaining())
    }

    /// Runs `work` under the locks, then releases them. When one of them is lost, the work is cancelled: its future is
    /// dropped at its next `await`.
    ///
    /// # Errors
    ///
    /// [`RunError::Cancelled`] and [`RunError::Unprotected`]: one of the locks was lost.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Self) -> T) -> Result<T, RunError<T>> {
        let done = tokio::select! {
            biased;
            reason = self.lost() => return Err(RunError::Cancelled(reason)),
            done = work(&self) => done,
        };
        after_release(done, self.release().await)
    }

    /// Releases all locks, at the same time.
    ///
    /// # Errors
    ///
    /// The first of those of [`Guard::release`]. The other locks are released all the same.
    pub async fn release(self) -> Result<(), Error> {
        let mut releases: FuturesUnordered<_> = self.guards.into_iter().map(Guard::release).collect();
        let mut outcome = Ok(());
        while let Some(released) = releases.next().await {
            outcome = outcome.and(released.map(drop));
        }
        outcome
    }
}

/// Resolves when one of the guards is lost, never if there is none.
async fn first_loss(guards: &[Guard]) -> LostReason {
    let mut each: FuturesUnordered<_> = guards.iter().map(Guard::lost).collect();
    match each.next().await {
        Some(reason) => reason,
        None => std::future::pending().await,
    }
}

/// The guards, in the order in which the locks were named.
impl IntoIterator for Guards {
    type Item = Guard;
    type IntoIter = std::vec::IntoIter<Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.guards.into_iter()
    }
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.guards).finish()
    }
}
