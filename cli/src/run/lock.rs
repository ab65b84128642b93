//! The lock of `dlock run`: on one server or deployment, or on a majority of several servers.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redis_dlock_client::quorum::{self, Exclusive, Shared};
use redis_dlock_client::{self as client, Error, LockInfo, LostReason, Owner, WaiterInfo};
use tokio::time::{sleep, timeout};

use crate::args::RunArgs;

/// How long to wait until servers have dropped a cancelled request.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(10);

pub enum Locks {
    One(client::Locks),
    Quorum(quorum::Locks),
}

pub enum Lock<'a> {
    One(client::Lock, Owner),
    Exclusive(quorum::Lock, &'a quorum::Locks),
    Shared(quorum::Lock<Shared>, &'a quorum::Locks),
}

pub enum Guard {
    One(client::Guard),
    Exclusive(quorum::Guard<Exclusive>),
    Shared(quorum::Guard<Shared>),
}

impl Locks {
    /// The lock that the arguments describe. The owner is for a lock on one server.
    pub fn lock(&self, args: &RunArgs, owner: &Owner, lease: Duration) -> Lock<'_> {
        let wait = if args.no_wait {
            Duration::ZERO
        } else {
            args.wait.unwrap_or(Duration::MAX)
        };
        let name = args.name.as_bytes();
        match self {
            Self::One(locks) => {
                let mut lock = locks.lock(name).lease(lease).owner(owner).wait(wait);
                if args.shared {
                    lock = lock.shared();
                }
                if let Some(limit) = args.limit {
                    lock = lock.limit(limit);
                }
                if let Some(time) = args.at_least {
                    lock = lock.at_least(time);
                }
                if let Some(time) = args.max_hold {
                    lock = lock.max_hold(time);
                }
                Lock::One(lock, owner.clone())
            }
            Self::Quorum(locks) => {
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

impl Lock<'_> {
    /// How many requests are queued before this one. All if it is not among those that the server lists.
    pub fn waiters_ahead(&self, info: &LockInfo) -> u64 {
        let is_own = |waiter: &WaiterInfo| matches!(self, Self::One(_, owner) if waiter.owner == *owner);
        let position = info.waiters.iter().position(is_own);
        position.map_or(info.waiting, |position| position as u64)
    }

    pub async fn acquire(&self) -> Result<Guard, Error> {
        match self {
            Self::One(lock, _) => lock.acquire().await.map(Guard::One),
            Self::Exclusive(lock, _) => lock.acquire().await.map(Guard::Exclusive),
            Self::Shared(lock, _) => lock.acquire().await.map(Guard::Shared),
        }
    }

    /// Who holds it and who waits. The servers of a quorum may differ about that.
    pub async fn info(&self) -> Result<Option<client::LockInfo>, Error> {
        match self {
            Self::One(lock, _) => lock.info().await,
            Self::Exclusive(..) | Self::Shared(..) => Ok(None),
        }
    }

    /// Waits until no server knows the request any more. A grant that is still in flight would block others until its
    /// lease expires.
    pub async fn wait_until_cancelled(&self) {
        let cancelled = async {
            match self {
                Self::One(lock, owner) => wait_until_unknown(lock, owner).await,
                Self::Exclusive(_, locks) | Self::Shared(_, locks) => locks.settle().await,
            }
        };
        // After a timeout, the request ends with the connection, or the grant with its lease.
        let _ = timeout(CANCEL_TIMEOUT, cancelled).await;
    }
}

async fn wait_until_unknown(lock: &client::Lock, owner: &Owner) {
    while let Ok(Some(info)) = lock.info().await {
        let holds = info.holders.iter().any(|holder| holder.owner == *owner);
        let waits = info.waiters.iter().any(|waiter| waiter.owner == *owner);
        if !holds && !waits {
            break;
        }
        sleep(CANCEL_POLL_INTERVAL).await;
    }
}

impl Guard {
    pub fn owner(&self) -> &Owner {
        match self {
            Self::One(guard) => guard.owner(),
            Self::Exclusive(guard) => guard.owner(),
            Self::Shared(guard) => guard.owner(),
        }
    }

    /// `None` for a lock that is shared over a quorum.
    pub fn fence(&self) -> Option<u64> {
        match self {
            Self::One(guard) => Some(guard.fence()),
            Self::Exclusive(guard) => Some(guard.fence()),
            Self::Shared(_) => None,
        }
    }

    pub async fn lost(&self) -> LostReason {
        match self {
            Self::One(guard) => guard.lost().await,
            Self::Exclusive(guard) => guard.lost().await,
            Self::Shared(guard) => guard.lost().await,
        }
    }

    pub fn lost_reason(&self) -> Option<LostReason> {
        match self {
            Self::One(guard) => guard.lost_reason(),
            Self::Exclusive(guard) => guard.lost_reason(),
            Self::Shared(guard) => guard.lost_reason(),
        }
    }

    pub async fn extend(&self, lease: Duration) -> Result<Duration, Error> {
        match self {
            Self::One(guard) => guard.extend(lease).await,
            Self::Exclusive(guard) => guard.extend(lease).await,
            Self::Shared(guard) => guard.extend(lease).await,
        }
    }

    /// After a failure, `--at-least` does not apply: another host may try at once.
    pub async fn release(self, is_success: bool) -> Result<(), Error> {
        match self {
            Self::One(guard) if is_success => guard.release().await.map(drop),
            Self::One(guard) => guard.release_at_once().await.map(drop),
            Self::Exclusive(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
        }
    }
}
