//! What went wrong, and what to do.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis_dlock_client::Lost;

/// What went wrong, and what to do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lock is lost: the work was not protected to its end.
    #[error("the lock is lost: {0}")]
    Lost(#[from] Lost),
    /// The lock was not granted in time.
    #[error("timed out after {waited:?} waiting for {key}: {}", Said(.last))]
    Timeout {
        /// The lock, as text.
        key: String,
        /// How long the request waited.
        waited: Duration,
        /// Why no majority could grant it; `None` if others held it.
        last: Option<NoQuorum>,
    },
    /// Too few servers could be reached or agreed.
    #[error("{0}")]
    NoQuorum(NoQuorum),
    /// An invalid address, option or use: what is wrong with it.
    #[error("{0}")]
    Invalid(String),
}

/// Fewer servers than a majority.
#[derive(Clone, Debug, PartialEq)]
pub struct NoQuorum {
    /// How many servers have to agree.
    pub needed: usize,
    /// How many did.
    pub agreed: usize,
    /// Why others did not.
    pub failures: Vec<NodeFailure>,
}

/// Why one server did not agree.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFailure {
    /// The address of the server.
    pub server: Arc<str>,
    /// Why; `None` if it did not reply.
    pub error: Option<redis_dlock_client::Error>,
}

impl Error {
    /// Whether the same request may succeed later without any change.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoQuorum(failure) => failure.is_transient(),
            Self::Timeout { last, .. } => last.as_ref().is_some_and(NoQuorum::is_transient),
            Self::Lost(_) | Self::Invalid(_) => false,
        }
    }
}

impl NoQuorum {
    fn is_transient(&self) -> bool {
        let is_transient =
            |failure: &NodeFailure| failure.error.as_ref().is_none_or(|error| error.is_transient());
        self.failures.iter().any(is_transient)
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, agreed, .. } = self;
        let servers = if *needed == 1 { "server" } else { "servers" };
        write!(f, "{needed} {servers} had to agree, but only {agreed} did")?;
        for (n, failure) in self.failures.iter().enumerate() {
            let separator = if n == 0 { ": " } else { "; " };
            match &failure.error {
                // It names the server where that matters.
                Some(error) if error.to_string().contains(&*failure.server) => {
                    write!(f, "{separator}{error}")?
                }
                Some(error) => write!(f, "{separator}{}: {error}", failure.server)?,
                None => write!(f, "{separator}{}: no reply", failure.server)?,
            }
        }
        Ok(())
    }
}

/// Why no lock was granted in time.
struct Said<'a>(&'a Option<NoQuorum>);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(None) => f.write_str("others held it"),
            Self(Some(last)) => last.fmt(f),
        }
    }
}

/// Why there is no result of work under a lock: see [`Lock::run`](crate::Lock::run).
pub type RunError<T, E = Infallible> = redis_dlock_client::RunError<T, E, Error>;

impl<T> From<RunError<T>> for Error {
    fn from(error: RunError<T>) -> Self {
        error.into_error()
    }
}

impl From<redis_dlock_client::Error> for Error {
    fn from(error: redis_dlock_client::Error) -> Self {
        match error {
            redis_dlock_client::Error::Lost(lost) => Self::Lost(lost),
            error => Self::Invalid(error.to_string()),
        }
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
