//! The lock of `dlock run`: on one server or deployment, or on a majority of several servers.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redis_dlock_client::{self as client, Error, LockInfo, Owner, WaiterInfo};
use redis_dlock_quorum::quorum::{self, Exclusive, Shared};
use redis_dlock_quorum::{Error as QuorumError, LostReason};
use tokio::time::timeout;

use crate::args::RunArgs;
use crate::exit::{Code, Failure};

/// How long to wait until servers have dropped a cancelled request.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

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
    Exclusive(quorum::Lock, &'a quorum::Locks),
    Shared(quorum::Lock<Shared>, &'a quorum::Locks),
}

pub enum Guard<'a> {
    One {
        guard: client::Guard,
        locks: &'a client::Locks,
    },
    Exclusive(quorum::Guard<Exclusive>),
    Shared(quorum::Guard<Shared>),
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

impl Refusal {
    fn granted_late() -> Self {
        let message = "granted, but the lease had expired when the reply arrived: use a longer --lease";
        Self::Failed(Failure::new(Code::NotAcquired, message))
    }
}

impl Locks {
    /// The lock that the arguments describe. The owner is for a lock on one server.
    pub fn lock(&self, args: &RunArgs, owner: &Owner, lease: Duration) -> Lock<'_> {
        let name = args.name.as_bytes();
        match self {
            Self::One(locks) => {
                let mut lock = locks.lock(name).lease(lease).owner(owner);
                if let Some(time) = args.wait {
                    lock = lock.timeout(time);
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
                let wait = if args.no_wait {
                    Duration::ZERO
                } else {
                    args.wait.unwrap_or(Duration::MAX)
                };
                let mut lock = locks.lock(name).lease(lease).wait(wait);
                if let Some(time) = args.max_hold {
                    lock = lock.max_hold(time);
                }
                if args.shared {
                    Lock::Shared(lock.shared(), locks)
                } else {
                    Lock::Exclusive(lock, locks)
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
                    Err(Error::Lost(_)) => Err(Refusal::granted_late()),
                    Err(error) => Err(Refusal::Failed(error.into())),
                }
            }
            Self::Exclusive(lock, _) => Ok(Guard::Exclusive(lock.acquire().await?)),
            Self::Shared(lock, _) => Ok(Guard::Shared(lock.acquire().await?)),
        }
    }

    /// Who holds it and who waits. The servers of a quorum may differ about that.
    pub async fn info(&self) -> Result<Option<LockInfo>, Error> {
        match self {
            Self::One { lock, .. } => lock.info().await,
            Self::Exclusive(..) | Self::Shared(..) => Ok(None),
        }
    }

    /// Waits until no server knows the request any more. A grant that is still in flight would block others until its
    /// lease expires.
    pub async fn wait_until_cancelled(&self) {
        let cancelled = async {
            match self {
                Self::One { locks, .. } => locks.shutdown().await,
                Self::Exclusive(_, locks) | Self::Shared(_, locks) => locks.settle().await,
            }
        };
        // After a timeout, the request ends with the time that it may wait, or the grant with its lease.
        let _ = timeout(CANCEL_TIMEOUT, cancelled).await;
    }
}

impl Guard<'_> {
    pub fn owner(&self) -> &[u8] {
        match self {
            Self::One { guard, .. } => guard.owner().as_bytes(),
            Self::Exclusive(guard) => guard.owner().as_bytes(),
            Self::Shared(guard) => guard.owner().as_bytes(),
        }
    }

    /// `None` for a lock that is shared over a quorum.
    pub fn fence(&self) -> Option<u64> {
        match self {
            Self::One { guard, .. } => Some(guard.fence()),
            Self::Exclusive(guard) => Some(guard.fence()),
            Self::Shared(_) => None,
        }
    }

    /// Resolves with the reason when the lock is lost.
    pub async fn lost(&self) -> String {
        match self {
            Self::One { guard, .. } => guard.lost().await.to_string(),
            Self::Exclusive(guard) => guard.lost().await.to_string(),
            Self::Shared(guard) => guard.lost().await.to_string(),
        }
    }

    /// Whether the lock is lost, as far as known here.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::One { guard, .. } => !guard.is_held(),
            Self::Exclusive(guard) => guard.lost_reason().is_some(),
            Self::Shared(guard) => guard.lost_reason().is_some(),
        }
    }

    /// Asks the server, and returns why the lock is lost if it is.
    pub async fn find_loss(&self) -> Option<String> {
        const SHORTEST: Duration = Duration::from_millis(1);
        let extended = match self {
            Self::One { guard, .. } => return loss_of(guard.extend(SHORTEST).await),
            Self::Exclusive(guard) => guard.extend(SHORTEST).await,
            Self::Shared(guard) => guard.extend(SHORTEST).await,
        };
        extended.err().as_ref().and_then(quorum_loss)
    }

    /// After a failure, `--at-least` does not apply: another host may try at once.
    pub async fn release(self, keeps: bool) -> Result<(), ReleaseError> {
        match self {
            Self::One { guard, locks } if !keeps => {
                drop(guard);
                let _ = timeout(CANCEL_TIMEOUT, locks.shutdown()).await;
                Ok(())
            }
            Self::One { guard, .. } => guard.release().await.map_err(|error| match error {
                Error::Lost(lost) => ReleaseError::Lost(lost.to_string()),
                error => ReleaseError::Failed(error.to_string()),
            }),
            Self::Exclusive(guard) => guard.release().await.map_err(ReleaseError::from),
            Self::Shared(guard) => guard.release().await.map_err(ReleaseError::from),
        }
    }
}

fn loss_of<T>(outcome: Result<T, Error>) -> Option<String> {
    match outcome {
        Err(Error::Lost(lost)) => Some(lost.to_string()),
        _ => None,
    }
}

fn quorum_loss(error: &QuorumError) -> Option<String> {
    match error {
        QuorumError::Lost(lost) => Some(LostReason::to_string(lost)),
        _ => None,
    }
}

impl From<QuorumError> for ReleaseError {
    fn from(error: QuorumError) -> Self {
        match quorum_loss(&error) {
            Some(loss) => Self::Lost(loss),
            None => Self::Failed(error.to_string()),
        }
    }
}

impl From<QuorumError> for Refusal {
    fn from(error: QuorumError) -> Self {
        match error {
            QuorumError::Busy => Self::Busy,
            QuorumError::Lost(_) => Self::granted_late(),
            error => Self::Failed(error.into()),
        }
    }
}
