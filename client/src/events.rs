use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::connect::Address;
use crate::error::Error;
use crate::hold::Loss;
use crate::owner::Owner;
use crate::ticket::Ticket;

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
    pub what: What<'a>,
}

/// What can happen to a lock.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum What<'a> {
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
    NotAcquired {
        /// Why.
        error: &'a Error,
        /// How long it took in all.
        took: Duration,
    },
    /// Nobody waited for the answer of a request any longer: it was taken back.
    Withdrawn,
    /// The lease was renewed.
    #[non_exhaustive]
    Renewed {
        /// How long it took.
        took: Duration,
    },
    /// The lease was not renewed. It is tried again until the lease ends. When the server says that the lock is lost,
    /// it is [`What::Lost`] instead.
    #[non_exhaustive]
    NotRenewed {
        /// Why.
        error: &'a Error,
    },
    /// It is lost.
    #[non_exhaustive]
    Lost {
        /// Why.
        loss: Loss,
    },
    /// It was given back.
    #[non_exhaustive]
    Released {
        /// How many holds the owner has left.
        holds_left: u64,
    },
    /// It was not given back, or that is not known.
    #[non_exhaustive]
    NotReleased {
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
    pub fn report(&self, ticket: &Ticket, what: What<'_>) {
        let event = Event {
            server: &self.server,
            key: &ticket.key,
            owner: &ticket.owner,
            what,
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
        server, owner, what, ..
    } = *event;
    let key = String::from_utf8_lossy(event.key);
    match what {
        What::Acquired { fence, took } => {
            tracing::debug!(%server, %key, %owner, fence, ?took, "lock acquired")
        }
        What::NotAcquired { error, took } => {
            tracing::debug!(%server, %key, %owner, %error, ?took, "lock not acquired")
        }
        What::Withdrawn => tracing::debug!(%server, %key, %owner, "request for a lock withdrawn"),
        What::Renewed { took } => tracing::trace!(%server, %key, %owner, ?took, "lease renewed"),
        What::NotRenewed { error } => {
            tracing::warn!(%server, %key, %owner, %error, "lease not renewed, trying again")
        }
        What::Lost { loss } => tracing::error!(%server, %key, %owner, %loss, "lock lost"),
        What::Released { holds_left } => tracing::debug!(%server, %key, %owner, holds_left, "lock released"),
        What::NotReleased { error } => tracing::warn!(%server, %key, %owner, %error, "lock not released"),
    }
}
