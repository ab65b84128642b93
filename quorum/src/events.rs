//! Events of locks over several servers.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use redis_dlock_client::{Lost, Owner};

use crate::error::Error;

/// An event of a lock, for metrics: see [`Settings::on_event`](crate::Settings::on_event).
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
        /// The fencing token; `None` of a shared lock.
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

/// The application's callback for events.
#[derive(Clone, Default)]
pub(crate) struct Hook(pub Option<Arc<Listener>>);

type Listener = dyn Fn(&Event) + Send + Sync;

impl Hook {
    /// Panics of hooks are contained: leases must be renewed after them, too.
    pub fn report(&self, key: &Arc<[u8]>, owner: &Owner, kind: EventKind) {
        let Self(Some(hook)) = self else {
            return;
        };
        let event = Event {
            key: Arc::clone(key),
            owner: owner.clone(),
            kind,
        };
        // The panic hook has printed its message.
        let _ = catch_unwind(AssertUnwindSafe(|| hook(&event)));
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Hook" } else { "no hook" })
    }
}
