//! The locks of `dlock run`: of one server or deployment, or of a majority of several servers.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redis_dlock_client::{self as client, Error, LockInfo, Owner};
use redis_dlock_quorum as quorum;
use tokio::time::timeout;

use super::deadline::Deadline;
use crate::args::RunArgs;
use crate::exit::Failure;
use crate::jobctl::Protection;

/// How long a release that need not be confirmed may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The lock that is asked for.
pub struct Request<'a> {
    pub args: &'a RunArgs,
    pub lease: Duration,
    pub deadline: Deadline,
    /// For a lock on one server.
    pub owner: Owner,
}

/// Where locks are acquired.
pub trait Locks {
    type Guard: Protection;

    /// `None` if others hold the lock and the request does not wait.
    async fn acquire(&self, request: &Request<'_>) -> Result<Option<Self::Guard>, Failure>;

    /// Who holds the lock and who waits for it, where one server knows that.
    async fn info(&self, request: &Request<'_>) -> Result<Option<LockInfo>, Error>;

    /// The owner, and the fence: `None` for a lock that is shared over a quorum.
    fn owner_and_fence(guard: &Self::Guard) -> (&[u8], Option<u64>);

    /// Releases the lock; `keeps` it for the time of `--at-least`.
    async fn release(&self, guard: Self::Guard, keeps: bool) -> Result<(), ReleaseError>;

    /// Waits until no server knows of a cancelled request or a dropped guard.
    async fn shutdown(&self);
}

/// Why a release did not end the hold for certain.
pub enum ReleaseError {
    /// Others may have had the lock before.
    Lost(String),
    Failed(String),
}

impl Request<'_> {
    pub fn name(&self) -> &[u8] {
        self.args.name.as_bytes()
    }

    /// What is left of `--wait`. `MAX`: no limit.
    fn timeout(&self) -> Duration {
        self.args.wait.map_or(Duration::MAX, |_| self.deadline.left())
    }
}

/// One server, the primary that Sentinels know, or a cluster.
pub struct Deployment {
    pub locks: client::Locks,
    pub is_cluster: bool,
}

impl Locks for Deployment {
    type Guard = client::Guard;

    async fn acquire(&self, request: &Request<'_>) -> Result<Option<client::Guard>, Failure> {
        let args = request.args;
        let lock = self.locks.lock(request.name()).lease(request.lease);
        let mut lock = lock.owner(&request.owner).timeout(request.timeout());
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
        Ok(match args.no_wait {
            true => lock.try_acquire().await?,
            false => Some(lock.acquire().await?),
        })
    }

    async fn info(&self, request: &Request<'_>) -> Result<Option<LockInfo>, Error> {
        self.locks.lock(request.name()).info().await
    }

    fn owner_and_fence(guard: &client::Guard) -> (&[u8], Option<u64>) {
        (guard.owner().as_bytes(), Some(guard.fence()))
    }

    async fn release(&self, guard: client::Guard, keeps: bool) -> Result<(), ReleaseError> {
        // A release tells of a loss that nothing else has revealed, but not for certain in a cluster.
        let asked = match self.is_cluster || !keeps {
            true => guard.extend(Duration::from_millis(1)).await.map(drop),
            false => Ok(()),
        };
        let released = if keeps {
            guard.release().await
        } else {
            drop(guard);
            let _ = timeout(RELEASE_TIMEOUT, self.shutdown()).await;
            Ok(())
        };
        match (asked, released) {
            (Err(Error::Lost(lost)), _) | (_, Err(Error::Lost(lost))) => {
                Err(ReleaseError::Lost(lost.to_string()))
            }
            (_, Err(error)) => Err(ReleaseError::Failed(error.to_string())),
            (_, Ok(())) => Ok(()),
        }
    }

    async fn shutdown(&self) {
        self.locks.shutdown().await;
    }
}

impl Protection for client::Guard {
    async fn lost(&self) -> String {
        self.lost().await.to_string()
    }

    fn is_lost(&self) -> bool {
        !self.is_held()
    }
}

impl Locks for quorum::Locks {
    type Guard = quorum::Guard;

    async fn acquire(&self, request: &Request<'_>) -> Result<Option<quorum::Guard>, Failure> {
        let lock = self.lock(request.name()).lease(request.lease);
        let mut lock = lock.timeout(request.timeout());
        if request.args.shared {
            lock = lock.shared();
        }
        if let Some(time) = request.args.max_hold {
            lock = lock.max_hold(time);
        }
        Ok(match request.args.no_wait {
            true => lock.try_acquire().await?,
            false => Some(lock.acquire().await?),
        })
    }

    /// The servers of a quorum may differ about it.
    async fn info(&self, _: &Request<'_>) -> Result<Option<LockInfo>, Error> {
        Ok(None)
    }

    fn owner_and_fence(guard: &quorum::Guard) -> (&[u8], Option<u64>) {
        (guard.owner().as_bytes(), guard.fence())
    }

    async fn release(&self, guard: quorum::Guard, _: bool) -> Result<(), ReleaseError> {
        let released = guard.release().await;
        // Also at the servers that a majority does not need.
        let _ = timeout(RELEASE_TIMEOUT, self.shutdown()).await;
        released.map_err(|error| match error {
            quorum::Error::Lost(lost) => ReleaseError::Lost(lost.to_string()),
            error => ReleaseError::Failed(error.to_string()),
        })
    }

    async fn shutdown(&self) {
        self.shutdown().await;
    }
}

impl Protection for quorum::Guard {
    async fn lost(&self) -> String {
        self.lost().await.to_string()
    }

    fn is_lost(&self) -> bool {
        !self.is_held()
    }
}
