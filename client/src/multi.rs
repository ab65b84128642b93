use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
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
    let locks = sorted(locks)?;
    let begun = BootInstant::now();
    let wait = locks
        .values()
        .map(|(_, lock)| lock.options.wait)
        .max()
        .unwrap_or_default();
    let owner = Owner::unique();
    let mut guards = BTreeMap::new();
    for (key, (index, mut lock)) in locks {
        lock.owner.get_or_insert_with(|| owner.clone());
        lock.options.wait = match wait {
            Duration::MAX => wait,
            _ => wait.saturating_sub(BootInstant::now().since(begun)),
        };
        let granted = lock.acquire().await.map_err(|error| match error {
            // The time was up before its turn.
            Error::Busy | Error::HeldBy(_) if !wait.is_zero() => {
                Error::timeout(&key, BootInstant::now().since(begun), None)
            }
            error => error,
        });
        guards.insert(index, granted?);
    }
    let guards = Guards {
        guards: guards.into_values().collect(),
    };
    guards
        .lost_reason()
        .map_or(Ok(guards), |reason| Err(Error::Lost(reason)))
}

/// By key, the order that all callers use, with the positions in which they were named.
type Sorted = BTreeMap<Arc<[u8]>, (usize, Lock)>;

fn sorted(locks: impl IntoIterator<Item = Lock>) -> Result<Sorted, Error> {
    let mut sorted = Sorted::new();
    for (index, lock) in locks.into_iter().enumerate() {
        let first = sorted.values().next();
        if first.is_some_and(|(_, first)| !Arc::ptr_eq(&first.client, &lock.client)) {
            return Err(Error::Invalid(
                "only locks of one `Locks` can be acquired together, because servers have no order".into(),
            ));
        }
        if let Some((_, same)) = sorted.insert(Arc::clone(&lock.key), (index, lock)) {
            let key = String::from_utf8_lossy(&same.key);
            return Err(Error::Invalid(format!(
                "{key} is named twice among the locks to acquire: name it once"
            )));
        }
    }
    Ok(sorted)
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
        self.guards
            .iter()
            .map(Guard::remaining)
            .min()
            .unwrap_or(Duration::MAX)
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
        let mut each: FuturesUnordered<_> = self.guards.iter().map(Guard::lost).collect();
        match each.next().await {
            Some(reason) => reason,
            // There is no lock to lose.
            None => std::future::pending().await,
        }
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
        try_join_all(self.guards.iter().map(|guard| guard.extend(lease))).await?;
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
        let outcomes = join_all(self.guards.into_iter().map(Guard::release)).await;
        outcomes.into_iter().try_for_each(|released| released.map(drop))
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
