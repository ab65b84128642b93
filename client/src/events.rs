use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::hold::Loss;
use crate::owner::Owner;

/// Something that happened to a lock, for metrics. The same goes to `tracing`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
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
    Acquired {
        /// The fencing token.
        fence: u64,
        /// How long it took in all.
        took: Duration,
    },
    /// It was not granted.
    NotAcquired {
        /// Why.
        error: &'a Error,
        /// How long it took in all.
        took: Duration,
    },
    /// Nobody waited for the answer of a request any longer: it was taken back.
    Withdrawn,
    /// The lease was renewed.
    Renewed {
        /// How long it took.
        took: Duration,
    },
    /// The lease was not renewed. It is tried again until the lease ends.
    NotRenewed {
        /// Why.
        error: &'a Error,
    },
    /// It is lost.
    Lost {
        /// Why.
        loss: Loss,
    },
    /// It was given back.
    Released {
        /// How many holds the owner has left.
        holds_left: u64,
    },
    /// It was not given back, or that is not known.
    NotReleased {
        /// Why.
        error: &'a Error,
    },
}

type Hook = dyn Fn(&Event<'_>) + Send + Sync;

/// Whom to tell.
#[derive(Clone, Default)]
pub(crate) struct Reporter {
    hook: Option<Arc<Hook>>,
}

impl Reporter {
    pub fn new(hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        Self {
            hook: Some(Arc::new(hook)),
        }
    }

    /// A hook that panics harms nobody but itself.
    pub fn report(&self, key: &[u8], owner: &Owner, what: What<'_>) {
        trace(key, owner, what);
        if let Some(hook) = &self.hook {
            let event = Event { key, owner, what };
            // The panic's message has been printed by then.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(&event)));
        }
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.hook.is_some() {
            "Reporter(hook)"
        } else {
            "Reporter"
        })
    }
}

fn trace(key: &[u8], owner: &Owner, what: What<'_>) {
    let key = String::from_utf8_lossy(key);
    match what {
        What::Acquired { fence, took } => tracing::debug!(%key, %owner, fence, ?took, "lock acquired"),
        What::NotAcquired { error, took } => {
            tracing::debug!(%key, %owner, %error, ?took, "lock not acquired")
        }
        What::Withdrawn => tracing::debug!(%key, %owner, "request for a lock withdrawn"),
        What::Renewed { took } => tracing::trace!(%key, %owner, ?took, "lease renewed"),
        What::NotRenewed { error } => tracing::warn!(%key, %owner, %error, "lease not renewed, trying again"),
        What::Lost { loss } => tracing::error!(%key, %owner, %loss, "lock lost"),
        What::Released { holds_left } => tracing::debug!(%key, %owner, holds_left, "lock released"),
        What::NotReleased { error } => tracing::warn!(%key, %owner, %error, "lock not released"),
    }
}
