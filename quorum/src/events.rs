use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crate::connect::Address;
use crate::error::{Error, LostReason};
use crate::identity::RequestIdentity;
use crate::owner::Owner;

/// How many events of the renewal thread may wait for a hook or subscriber.
const MAX_PENDING: usize = 1024;

/// An event of a lock, for metrics. The same events go to `tracing`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The server.
    pub server: Address,
    /// The key of the lock.
    pub key: Arc<[u8]>,
    /// The owner of the acquisition.
    pub owner: Owner,
    /// What happened.
    pub kind: EventKind,
}

/// The kinds of events.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The lock was granted.
    #[non_exhaustive]
    Acquired {
        /// The fencing token; 0 of a lock that is shared on several servers.
        fence: u64,
        /// How long the acquisition took.
        took: Duration,
    },
    /// The lock was not granted.
    #[non_exhaustive]
    AcquireFailed {
        /// Why.
        error: Error,
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
        error: Error,
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
    /// The guard was released, but the lock is kept: see [`Lock::at_least`](crate::Lock::at_least).
    #[non_exhaustive]
    Kept {
        /// For how long.
        time: Duration,
    },
    /// The lock was not released, or the outcome is unknown.
    #[non_exhaustive]
    ReleaseFailed {
        /// Why.
        error: Error,
    },
}

impl EventKind {
    /// How an acquisition ended, by its fence.
    pub(crate) fn of_acquisition(outcome: Result<u64, &Error>, took: Duration) -> Self {
        match outcome {
            Ok(fence) => Self::Acquired { fence, took },
            Err(error) => Self::AcquireFailed {
                error: error.clone(),
                took,
            },
        }
    }
}

/// The application's callback for events.
#[derive(Clone, Default)]
pub(crate) struct Hook(Option<Arc<Listener>>);

type Listener = dyn Fn(&Event) + Send + Sync;

impl Hook {
    pub fn new(hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Hook" } else { "no hook" })
    }
}

/// Reports events.
///
/// Hooks and subscribers are called in the task in which an event occurs, except for those of the renewal thread, which
/// must not wait: another thread delivers them, and drops those for which there is no room.
pub(crate) struct Reporter {
    hook: Hook,
    background: OnceLock<SyncSender<Event>>,
    dropped: AtomicU64,
}

thread_local! {
    static IS_RENEWAL_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// From now on, events of this thread are delivered by another one.
pub(crate) fn enter_renewal_thread() {
    IS_RENEWAL_THREAD.set(true);
}

impl Reporter {
    pub fn new(hook: Hook) -> Self {
        Self {
            hook,
            background: OnceLock::new(),
            dropped: AtomicU64::new(0),
        }
    }

    /// How many events were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub fn report(&self, server: &Address, identity: &RequestIdentity, kind: EventKind) {
        let event = Event {
            server: server.clone(),
            key: Arc::clone(&identity.key),
            owner: identity.owner.clone(),
            kind,
        };
        if !IS_RENEWAL_THREAD.get() {
            self.hook.deliver(&event);
        } else if self.background().try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn background(&self) -> &SyncSender<Event> {
        self.background.get_or_init(|| {
            let (sender, events) = sync_channel::<Event>(MAX_PENDING);
            let hook = self.hook.clone();
            let deliver = move || events.iter().for_each(|event| hook.deliver(&event));
            // Without a thread, sending fails, and the events count as dropped.
            let _ = thread::Builder::new().name("dlock-events".into()).spawn(deliver);
            sender
        })
    }
}

impl Hook {
    /// Panics of hooks and subscribers are contained.
    fn deliver(&self, event: &Event) {
        // The panic hook has printed its message.
        let _ = catch_unwind(AssertUnwindSafe(|| trace(event)));
        if let Self(Some(hook)) = self {
            let _ = catch_unwind(AssertUnwindSafe(|| hook(event)));
        }
    }
}

fn trace(event: &Event) {
    use EventKind::*;
    use tracing::{debug, error, trace, warn};
    let (server, owner, key) = (&event.server, &event.owner, String::from_utf8_lossy(&event.key));
    match &event.kind {
        Acquired { fence, took } => debug!(%server, %key, %owner, fence, ?took, "lock acquired"),
        AcquireFailed { error, took } => debug!(%server, %key, %owner, %error, ?took, "lock not acquired"),
        Cancelled => debug!(%server, %key, %owner, "lock request cancelled"),
        Renewed { took } => trace!(%server, %key, %owner, ?took, "lease renewed"),
        RenewFailed { error } => warn!(%server, %key, %owner, %error, "lease renewal failed, retrying"),
        Lost { reason } => error!(%server, %key, %owner, %reason, "lock lost"),
        Released { holds_left } => debug!(%server, %key, %owner, holds_left, "lock released"),
        Kept { time } => debug!(%server, %key, %owner, ?time, "lock kept"),
        ReleaseFailed { error } => warn!(%server, %key, %owner, %error, "lock release failed"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn renewal_thread_does_not_wait_for_stuck_hook_and_counts_dropped_events() {
        let (open, gate) = mpsc::channel::<()>();
        let gate = std::sync::Mutex::new(gate);
        let hook = Hook::new(move |_| _ = gate.lock().unwrap().recv());
        let reporter = Reporter::new(hook);
        let server: Address = "redis://127.0.0.1/".parse().unwrap();
        let identity = RequestIdentity::new(b"door"[..].into(), Owner::from("alice"));
        enter_renewal_thread();
        for _ in 0..MAX_PENDING + 10 {
            reporter.report(&server, &identity, EventKind::Cancelled);
        }
        // One of them may be at the hook.
        assert!((9..=10).contains(&reporter.dropped()), "{}", reporter.dropped());
        drop(open);
    }
}
