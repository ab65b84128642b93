//! Events of locks over several servers.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

/// Who is told of events: `tracing`, and the application's callback.
#[derive(Clone, Default)]
pub(crate) struct Hook(Option<Arc<Callback>>);

type Callback = dyn Fn(&Event) + Send + Sync;

impl Hook {
    /// Also tells the application.
    pub fn calling(callback: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(callback)))
    }

    /// Panics of callbacks and subscribers are contained: leases must be renewed after them, too.
    pub fn report(&self, event: &Event) {
        // The panic hook has printed its message.
        let _ = catch_unwind(AssertUnwindSafe(|| trace(event)));
        if let Self(Some(callback)) = self {
            let _ = catch_unwind(AssertUnwindSafe(|| callback(event)));
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self(Some(_)) => "Hook",
            Self(None) => "no hook",
        })
    }
}

fn trace(event: &Event) {
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
