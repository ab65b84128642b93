//! Events of locks over several servers.

use std::sync::Arc;
use std::time::Duration;

use redis_dlock_client::{Lost, Owner};

use crate::error::Error;

/// An event of a lock, for metrics: see [`Settings::on_event`](crate::Settings::on_event). The same events go to
/// `tracing`.
#[derive(Clone, Debug)]
pub struct Event {
    /// The key of the lock.
    pub key: Arc<[u8]>,
    /// The owner of the acquisition.
    pub owner: Owner,
    /// What happened.
    pub kind: EventKind,
}

/// The kinds of events. Each acquisition has one [`EventKind::Acquired`] or [`EventKind::NotAcquired`], and each
/// [`EventKind::Acquired`] has one [`EventKind::Ended`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The lock was granted by a majority.
    Acquired {
        /// The fencing token; `None` for a shared lock.
        fence: Option<u64>,
        /// How long the acquisition took.
        took: Duration,
    },
    /// The lock was not granted.
    NotAcquired {
        /// Why; `None` if others held it, or the caller gave up.
        error: Option<Error>,
        /// How long the attempt took.
        took: Duration,
    },
    /// The lease was not renewed at one server. This is retried until it expires.
    RenewFailed {
        /// The address of the server.
        server: Arc<str>,
        /// Why.
        error: redis_dlock_client::Error,
    },
    /// The lease was renewed at this server after that had failed.
    RenewedAgain {
        /// The address of the server.
        server: Arc<str>,
    },
    /// The lock is not held any more.
    Ended {
        /// Why it was lost; `None` if it was released.
        lost: Option<Lost>,
    },
}

pub(crate) fn trace(event: &Event) {
    use EventKind::*;
    use tracing::{debug, error, warn};
    let (owner, key) = (&event.owner, String::from_utf8_lossy(&event.key));
    match &event.kind {
        Acquired { fence, took } => debug!(%key, %owner, ?fence, ?took, "lock acquired"),
        NotAcquired { error: None, took } => debug!(%key, %owner, ?took, "lock not acquired"),
        NotAcquired {
            error: Some(error),
            took,
        } => debug!(%key, %owner, %error, ?took, "lock not acquired"),
        RenewFailed { server, error } => {
            warn!(%key, %owner, %server, %error, "lease renewal failed, retrying")
        }
        RenewedAgain { server } => debug!(%key, %owner, %server, "lease renewed again"),
        Ended { lost: None } => debug!(%key, %owner, "lock released"),
        Ended { lost: Some(lost) } => error!(%key, %owner, %lost, "lock lost"),
    }
}
