use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::connect::Address;
use crate::error::{Error, LostReason};
use crate::identity::RequestIdentity;
use crate::owner::Owner;

/// An event of a lock, for metrics. The same events go to `tracing`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The server.
    pub server: &'a Address,
    /// The key of the lock.
    pub key: &'a [u8],
    /// The owner of the acquisition.
    pub owner: &'a Owner,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// The lock was granted.
    #[non_exhaustive]
    Acquired {
        /// The fencing token.
        fence: u64,
        /// How long the acquisition took.
        took: Duration,
    },
    /// The lock was not granted.
    #[non_exhaustive]
    AcquireFailed {
        /// Why.
        error: &'a Error,
        /// How long the attempt took.
        took: Duration,
    },
    /// A request was cancelled because its reply was not awaited any more.
    Cancelled,
    /// The lease was renewed.
    #[non_exhaustive]
    Renewed {
        /// How long it took.
        took: Duration,
    },
    /// The lease was not renewed. The renewal is retried until the lease expires. If the server reports that the lock
    /// is lost, the event is [`EventKind::Lost`] instead.
    #[non_exhaustive]
    RenewFailed {
        /// Why.
        error: &'a Error,
    },
    /// The lock was lost.
    #[non_exhaustive]
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// The lock was released.
    #[non_exhaustive]
    Released {
        /// How many holds the owner has left.
        holds_left: u64,
    },
    /// The lock was not released, or the outcome is unknown.
    #[non_exhaustive]
    ReleaseFailed {
        /// Why.
        error: &'a Error,
    },
}

/// The application's callback for events.
#[derive(Clone, Default)]
pub(crate) struct Hook(Option<Arc<Listener>>);

type Listener = dyn Fn(&Event<'_>) + Send + Sync;

impl Hook {
    pub fn new(hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Hook" } else { "no hook" })
    }
}

/// Reports the events of one server.
pub(crate) struct Reporter {
    server: Address,
    hook: Hook,
}

impl Reporter {
    pub fn new(server: Address, hook: Hook) -> Self {
        Self { server, hook }
    }

    pub fn server(&self) -> &Address {
        &self.server
    }

    /// Panics of hooks and subscribers are contained.
    pub fn report(&self, identity: &RequestIdentity, kind: EventKind<'_>) {
        let event = Event {
            server: &self.server,
            key: &identity.key,
            owner: &identity.owner,
            kind,
        };
        // The panic hook has printed its message.
        let _ = catch_unwind(AssertUnwindSafe(|| trace(&event)));
        if let Hook(Some(hook)) = &self.hook {
            let _ = catch_unwind(AssertUnwindSafe(|| hook(&event)));
        }
    }
}

fn trace(event: &Event<'_>) {
    let Event {
        server, owner, kind, ..
    } = *event;
    let key = String::from_utf8_lossy(event.key);
    match kind {
        EventKind::Acquired { fence, took } => {
            tracing::debug!(%server, %key, %owner, fence, ?took, "lock acquired")
        }
        EventKind::AcquireFailed { error, took } => {
            tracing::debug!(%server, %key, %owner, %error, ?took, "lock not acquired")
        }
        EventKind::Cancelled => tracing::debug!(%server, %key, %owner, "lock request cancelled"),
        EventKind::Renewed { took } => tracing::trace!(%server, %key, %owner, ?took, "lease renewed"),
        EventKind::RenewFailed { error } => {
            tracing::warn!(%server, %key, %owner, %error, "lease renewal failed, retrying")
        }
        EventKind::Lost { reason } => tracing::error!(%server, %key, %owner, %reason, "lock lost"),
        EventKind::Released { holds_left } => {
            tracing::debug!(%server, %key, %owner, holds_left, "lock released")
        }
        EventKind::ReleaseFailed { error } => {
            tracing::warn!(%server, %key, %owner, %error, "lock release failed")
        }
    }
}
