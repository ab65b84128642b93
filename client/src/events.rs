//! Events of locks, for metrics.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use crate::command::Owner;
use crate::error::{Error, Lost};

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

/// The kinds of events.
///
/// Each acquisition has one [`EventKind::Acquired`] or [`EventKind::NotAcquired`], and each [`EventKind::Acquired`] has
/// one [`EventKind::Ended`]: their difference is the number of locks that are held.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The lock is taken: the request waits, at most once for each acquisition.
    Waiting {
        /// How many requests wait before it, up to 1 000, if the server said so at once.
        ahead: Option<u64>,
    },
    /// The request has waited in the queue for a second or more. This is told at most once for each acquisition, and of
    /// one in ten seconds.
    StillWaiting {
        /// Who holds the lock, of several the one that has held it longest; `None` if the server has not told that. The
        /// right to `DLOCK.OWNER` is needed for it.
        holder: Option<Owner>,
        /// How long it has waited.
        waited: Duration,
    },
    /// The lock was granted.
    Acquired {
        /// The fencing token.
        fence: u64,
        /// How long the acquisition took.
        took: Duration,
    },
    /// The lock was not granted.
    NotAcquired {
        /// Why; `None` if it was taken, or the caller gave up.
        error: Option<Error>,
        /// How long the attempt took.
        took: Duration,
    },
    /// The lease was not renewed. This is retried until the lease expires.
    RenewFailed {
        /// Why.
        error: Error,
    },
    /// The lease was renewed after that had failed.
    RenewedAgain,
    /// The lock is not held any more.
    Ended {
        /// How it ended.
        how: End,
        /// How long it was held.
        held: Duration,
    },
}

/// How a hold ended.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum End {
    /// It was released.
    Released,
    /// Its guard was released, but the lock is kept: see [`Lock::release_after`](crate::Lock::release_after).
    Kept {
        /// For how long.
        rest: Duration,
    },
    /// It was lost.
    Lost(Lost),
    /// Its release failed, or no reply confirmed it. The lock is free once its lease expires.
    Unconfirmed(Error),
}

/// Who is told of events: `tracing`, and the application's callback.
#[derive(Clone, Default)]
pub(crate) struct Hook {
    pub callback: Option<Arc<Callback>>,
    pub is_untraced: bool,
}

type Callback = dyn Fn(&Event) + Send + Sync;

impl Hook {
    /// Whether nobody would hear of an event.
    pub fn is_deaf(&self) -> bool {
        self.callback.is_none() && (self.is_untraced || LevelFilter::current() == LevelFilter::OFF)
    }

    /// Panics of callbacks and subscribers are contained: leases must be renewed after them, too.
    pub fn report(&self, event: &Event) {
        // The panic hook has printed its message.
        if !self.is_untraced {
            let _ = catch_unwind(AssertUnwindSafe(|| trace(event)));
        }
        if let Some(callback) = &self.callback {
            let _ = catch_unwind(AssertUnwindSafe(|| callback(event)));
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.callback {
            Some(_) => "Hook",
            None => "no hook",
        })
    }
}

fn trace(event: &Event) {
    use EventKind::*;
    use tracing::{debug, error, info, warn};
    let (owner, key) = (&event.owner, String::from_utf8_lossy(&event.key));
    match &event.kind {
        Waiting { ahead } => debug!(%key, %owner, ahead, "lock is taken, waiting"),
        StillWaiting {
            holder: Some(holder),
            waited,
        } => info!(%key, %owner, %holder, ?waited, "still waiting for the lock"),
        StillWaiting { holder: None, waited } => info!(%key, %owner, ?waited, "still waiting for the lock"),
        Acquired { fence, took } => debug!(%key, %owner, fence, ?took, "lock acquired"),
        NotAcquired { error: None, took } => debug!(%key, %owner, ?took, "lock not acquired"),
        NotAcquired {
            error: Some(error),
            took,
        } => debug!(%key, %owner, %error, ?took, "lock not acquired"),
        RenewFailed { error } => warn!(%key, %owner, %error, "lease renewal failed, retrying"),
        RenewedAgain => debug!(%key, %owner, "lease renewed again"),
        Ended { how, held } => match how {
            End::Released => debug!(%key, %owner, ?held, "lock released"),
            End::Kept { rest } => debug!(%key, %owner, ?held, ?rest, "lock kept"),
            End::Lost(lost) => error!(%key, %owner, ?held, %lost, "lock lost"),
            End::Unconfirmed(error) => warn!(%key, %owner, ?held, %error, "lock release not confirmed"),
        },
    }
}
