//! The lock of `dlock run`: on one server or deployment, or on a majority of several servers.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redis_dlock_client::{self as client, Error, LockInfo, Owner, WaiterInfo};
use redis_dlock_quorum as quorum;
use tokio::time::timeout;

use super::deadline::Deadline;
use crate::args::RunArgs;
use crate::exit::Failure;

/// How long a release that need not be confirmed may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

pub enum Locks {
    One(client::Locks),
    Quorum(quorum::Locks),
}

pub enum Lock<'a> {
    One {
        lock: Box<client::Lock>,
        owner: Owner,
        waits: bool,
        locks: &'a client::Locks,
    },
    Quorum {
        lock: quorum::Lock,
        waits: bool,
        locks: &'a quorum::Locks,
    },
}

pub enum Guard<'a> {
    One {
        guard: client::Guard,
        locks: &'a client::Locks,
    },
    Quorum {
        guard: quorum::Guard,
        locks: &'a quorum::Locks,
    },
}

/// Why there is no guard.
pub enum Refusal {
    Busy,
    Failed(Failure),
}

/// Why a release did not end the hold for certain.
pub enum ReleaseError {
    /// Others may have had the lock before.
    Lost(String),
    Failed(String),
}

impl Locks {
    /// The lock that the arguments describe. The owner is for a lock on one server.
    pub fn lock(&self, args: &RunArgs, owner: &Owner, lease: Duration, deadline: Deadline) -> Lock<'_> {
        let name = args.name.as_bytes();
        match self {
            Self::One(locks) => {
                let mut lock = locks.lock(name).lease(lease).owner(owner);
                if args.wait.is_some() {
                    lock = lock.timeout(deadline.left());
                }
                if args.shared {
                    lock = lock.shared();
                }
                if let Some(limit) = args.limit {
                    lock = lock.limit(limit);
                }
                if let Some(time) = args.at_least {
                    lock = lock.release_after(time);
                }
                if let Some(time) = args.max_hold {
                    lock = lock.max_hold(time);
                }
                Lock::One {
                    lock: Box::new(lock),
                    owner: owner.clone(),
                    waits: !args.no_wait,
                    locks,
                }
            }
            Self::Quorum(locks) => {
                let mut lock = locks.lock(name).lease(lease);
                if args.wait.is_some() {
                    lock = lock.timeout(deadline.left());
                }
                if args.shared {
                    lock = lock.shared();
                }
                if let Some(time) = args.max_hold {
                    lock = lock.max_hold(time);
                }
                Lock::Quorum {
                    lock,
                    waits: !args.no_wait,
                    locks,
                }
            }
        }
    }
}

impl<'a> Lock<'a> {
    /// How many requests are queued before this one. All if it is not among those that the server lists.
    pub fn waiters_ahead(&self, info: &LockInfo) -> u64 {
        let is_own = |waiter: &WaiterInfo| matches!(self, Self::One { owner, .. } if waiter.owner == *owner);
        let position = info.waiters.iter().position(is_own);
        position.map_or(info.waiting, |position| position as u64)
    }

    pub async fn acquire(&self) -> Result<Guard<'a>, Refusal> {
        match self {
            Self::One {
                lock, waits, locks, ..
            } => {
                let guard = match waits {
                    true => lock.acquire().await.map(Some),
                    false => lock.try_acquire().await,
                };
                match guard {
                    Ok(Some(guard)) => Ok(Guard::One { guard, locks }),
                    Ok(None) => Err(Refusal::Busy),
                    Err(error) => Err(Refusal::Failed(error.into())),
                }
            }
            Self::Quorum { lock, waits, locks } => {
                let guard = match waits {
                    true => lock.acquire().await.map(Some),
                    false => lock.try_acquire().await,
                };
                match guard {
                    Ok(Some(guard)) => Ok(Guard::Quorum { guard, locks }),
                    Ok(None) => Err(Refusal::Busy),
                    Err(error) => Err(Refusal::Failed(error.into())),
                }
            }
        }
    }

    /// Who holds it and who waits. The servers of a quorum may differ about that.
    pub async fn info(&self) -> Result<Option<LockInfo>, Error> {
        match self {
            Self::One { lock, .. } => lock.info().await,
            Self::Quorum { .. } => Ok(None),
        }
    }

    /// Waits until no server knows the request any more. A grant that is still in flight would block others until its
    /// lease expires.
    pub async fn wait_until_cancelled(&self, deadline: Deadline) {
        let cancelled = async {
            match self {
                Self::One { locks, .. } => locks.shutdown().await,
                Self::Quorum { locks, .. } => locks.shutdown().await,
            }
        };
        deadline.cancel(cancelled).await;
    }
}

impl Guard<'_> {
    pub fn owner(&self) -> &[u8] {
        match self {
            Self::One { guard, .. } => guard.owner().as_bytes(),
            Self::Quorum { guard, .. } => guard.owner().as_bytes(),
        }
    }

    /// `None` for a lock that is shared over a quorum.
    pub fn fence(&self) -> Option<u64> {
        match self {
            Self::One { guard, .. } => Some(guard.fence()),
            Self::Quorum { guard, .. } => guard.fence(),
        }
    }

    /// Resolves with the reason when the lock is lost.
    pub async fn lost(&self) -> String {
        match self {
            Self::One { guard, .. } => guard.lost().await.to_string(),
            Self::Quorum { guard, .. } => guard.lost().await.to_string(),
        }
    }

    /// Whether the lock is lost, as far as known here.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::One { guard, .. } => !guard.is_held(),
            Self::Quorum { guard, .. } => !guard.is_held(),
        }
    }

    /// Asks the server, and returns why the lock is lost if it is.
    pub async fn find_loss(&self) -> Option<String> {
        const SHORTEST: Duration = Duration::from_millis(1);
        match self {
            Self::One { guard, .. } => match guard.extend(SHORTEST).await {
                Err(Error::Lost(lost)) => Some(lost.to_string()),
                _ => None,
            },
            Self::Quorum { guard, .. } => match guard.extend(SHORTEST).await {
                Err(quorum::Error::Lost(lost)) => Some(lost.to_string()),
                _ => None,
            },
        }
    }

    /// After a failure, `--at-least` does not apply: another host may try at once.
    pub async fn release(self, keeps: bool) -> Result<(), ReleaseError> {
        match self {
            Self::One { guard, locks } if !keeps => {
                drop(guard);
                let _ = timeout(RELEASE_TIMEOUT, locks.shutdown()).await;
                Ok(())
            }
            Self::One { guard, .. } => guard.release().await.map_err(|error| match error {
                Error::Lost(lost) => ReleaseError::Lost(lost.to_string()),
                error => ReleaseError::Failed(error.to_string()),
            }),
            Self::Quorum { guard, locks } => {
                let released = guard.release().await;
                // Also at the servers that a majority does not need.
                let _ = timeout(RELEASE_TIMEOUT, locks.shutdown()).await;
                released.map_err(|error| match error {
                    quorum::Error::Lost(lost) => ReleaseError::Lost(lost.to_string()),
                    error => ReleaseError::Failed(error.to_string()),
                })
            }
        }
    }
}
