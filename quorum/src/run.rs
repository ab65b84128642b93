//! Work under a lock.

use std::fmt;

use crate::error::{Error, LostReason};

/// Why there is no result of work under a lock: see [`Lock::run`](crate::Lock::run).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RunError<T> {
    /// The lock was not acquired, and the work not started.
    #[error("{0}")]
    NotAcquired(#[source] Error),
    /// The lock was lost, and the work was cancelled at an `await`.
    #[error("the work was cancelled because the lock is lost: {0}")]
    Cancelled(LostReason),
    /// The work was finished, but the lock was lost before its release: other holders may have worked at the same time.
    #[error("the lock was lost before the work was finished: {reason}")]
    Unprotected {
        /// Why the lock was lost.
        reason: LostReason,
        /// The result of the work.
        done: T,
    },
}

impl<T> RunError<T> {
    /// Whether the lock was lost. If not, the work was not started.
    pub fn is_lost(&self) -> bool {
        !matches!(self, Self::NotAcquired(error) if !error.is_lost())
    }
}

/// The outcome of work that ended before the release of its lock.
pub(crate) fn after_release<T, R>(done: T, released: Result<R, Error>) -> Result<T, RunError<T>> {
    match released {
        Err(Error::Lost(reason)) => Err(RunError::Unprotected { reason, done }),
        // The work was done while the lock was held, even if the lock may not be free yet.
        _ => Ok(done),
    }
}

/// Without the result of unprotected work.
impl<T> From<RunError<T>> for Error {
    fn from(error: RunError<T>) -> Self {
        match error {
            RunError::NotAcquired(error) => error,
            RunError::Cancelled(reason) | RunError::Unprotected { reason, .. } => Self::Lost(reason),
        }
    }
}

impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(error) => f.debug_tuple("NotAcquired").field(error).finish(),
            Self::Cancelled(reason) => f.debug_tuple("Cancelled").field(reason).finish(),
            Self::Unprotected { reason, .. } => f
                .debug_struct("Unprotected")
                .field("reason", reason)
                .finish_non_exhaustive(),
        }
    }
}
