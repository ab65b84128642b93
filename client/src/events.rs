use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::connect::Address;
use crate::error::Error;
use crate::hold::LostReason;
use crate::identity::RequestIdentity;
use crate::owner::Owner;

/// Something that happened to a lock, for metrics. The same goes to `tracing`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// Where: of several servers, each has its own events.
    pub server: &'a Address,
    /// The lock.
    pub key: &'a [u8],
    /// Who asked for it.
    pub owner: &'a Owner,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// What can happen to a lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// It was granted.
    #[non_exhaustive]
    Acquired {
        /// The fencing token.
        fence: u64,
        /// How long it took in all.
        took: Duration,
    },
    /// It was not granted.
    #[non_exhaustive]
    AcquireFailed {
        /// Why.
        error: &'a Error,
        /// How long it took in all.
        took: Duration,
    },
    /// Nobody waited for the answer of a request any longer: it was taken back.
    Cancelled,
    /// The lease was renewed.
    #[non_exhaustive]
    Renewed {
        /// How long it took.
        took: Duration,
    },
    /// The lease was not renewed. It is tried again until the lease ends. When the server says that the lock is lost,
    /// it is [`EventKind::Lost`] instead.
    #[non_exhaustive]
    RenewFailed {
        /// Why.
        error: &'a Error,
    },
    /// It is lost.
    #[non_exhaustive]
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// It was given back.
    #[non_exhaustive]
    Released {
        /// How many holds the owner has left.
        holds_left: u64,
    },
    /// It was not given back, or that is not known.
    #[non_exhaustive]
    ReleaseFailed {
        /// Why.
        error: &'a Error,
    },
}

/// What an application wants to be told.
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

/// Tells what happens to the locks of a server.
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

    /// A hook or a subscriber that panics harms nobody but itself.
    pub fn report(&self, identity: &RequestIdentity, kind: EventKind<'_>) {
        let event = Event {
            server: &self.server,
            key: &identity.key,
            owner: &identity.owner,
            kind,
        };
        // The panic's message has been printed by then.
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
        EventKind::Cancelled => tracing::debug!(%server, %key, %owner, "request for a lock withdrawn"),
        EventKind::Renewed { took } => tracing::trace!(%server, %key, %owner, ?took, "lease renewed"),
        EventKind::RenewFailed { error } => {
            tracing::warn!(%server, %key, %owner, %error, "lease not renewed, trying again")
        }
        EventKind::Lost { reason } => tracing::error!(%server, %key, %owner, %reason, "lock lost"),
        EventKind::Released { holds_left } => {
            tracing::debug!(%server, %key, %owner, holds_left, "lock released")
        }
        EventKind::ReleaseFailed { error } => {
            tracing::warn!(%server, %key, %owner, %error, "lock not released")
        }
    }
}
