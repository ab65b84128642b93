use std::sync::{Arc, Once};
use std::time::Duration;

use crate::connect::{Address, BlockingPool, Link, Purpose, Timeouts, WaitLimits};
use crate::events::{Event, EventKind, Hook, Reporter};
use crate::identity::RequestIdentity;
use crate::renewal::{RenewalContext, RenewalThread};

/// Timeouts, and a hook for events.
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    pub(crate) timeouts: Timeouts,
    retry_timeout: Duration,
    wait_limits: WaitLimits,
    pub(crate) hook: Hook,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeouts: Timeouts {
                connect: Duration::from_secs(2),
                response: Duration::from_secs(1),
            },
            retry_timeout: Duration::from_secs(5),
            wait_limits: WaitLimits {
                total: 64,
                per_key: 16,
            },
            hook: Hook::default(),
        }
    }
}

impl Settings {
    /// How long to wait for a connection. Default: 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// How long to wait for the reply to a request that does not block. Default: 1 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.response = timeout;
        self
    }

    /// How long a request that does not block is retried when the connection is lost. Default: 5 s.
    ///
    /// [`Lock::try_acquire`](crate::Lock::try_acquire) and [`Guard::release`](crate::Guard::release) take no longer, even
    /// if the server is silent; but they give one request its time to connect and to respond.
    pub fn retry_timeout(mut self, timeout: Duration) -> Self {
        self.retry_timeout = timeout;
        self
    }

    /// How many connections waiting requests may use, in all and for one lock. Default: 64 and 16; at least 1.
    ///
    /// A request that waits in the server's queue occupies a connection, here and in the server. Requests beyond the
    /// limits wait in this process, in order of arrival, and take their place in the server's queue when it is their
    /// turn. Keep `total` well below the process's limit of open files and the server's `maxclients`, which count the
    /// connections of all processes.
    pub fn max_waiting(mut self, total: usize, per_lock: usize) -> Self {
        self.wait_limits = WaitLimits {
            total: total.max(1),
            per_key: per_lock.max(1),
        };
        self
    }

    /// Calls `hook` for every event: in the task in which it occurs, or, for renewals, losses and everything else in the
    /// background, in a thread of its own. A hook that is too slow for these loses events, never a lock: see
    /// [`Locks::dropped_events`](crate::Locks::dropped_events). The same applies to subscribers of `tracing`.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use redis_dlock_quorum::{EventKind, Settings};
    ///
    /// static LOST: AtomicU64 = AtomicU64::new(0);
    /// let settings = Settings::default().on_event(|event| {
    ///     if let EventKind::Lost { .. } = event.kind {
    ///         LOST.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// ```
    pub fn on_event(mut self, hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.hook = Hook::new(hook);
        self
    }
}

/// What all locks and guards of one address share.
pub(crate) struct Client {
    /// The connection for requests of the application's tasks, in their runtime.
    pub link: Arc<Link>,
    /// The connections for blocked requests.
    pub pool: Arc<BlockingPool>,
    pub renewal_context: Arc<RenewalContext>,
    pub renewal_thread: Arc<RenewalThread>,
    pub retry_timeout: Duration,
    /// How long a request that does not block may take, including the time to connect.
    pub longest_request: Duration,
    warm_up: Once,
}

impl Client {
    /// Clients of several servers may share a renewal thread and a reporter.
    pub fn new(
        address: Address,
        settings: &Settings,
        renewal_thread: Arc<RenewalThread>,
        reporter: Arc<Reporter>,
        is_member: bool,
    ) -> Self {
        let timeouts = settings.timeouts;
        let runtime = renewal_thread.runtime().clone();
        let pool = BlockingPool::new(address.clone(), timeouts, settings.wait_limits, runtime);
        let renewals = Link::new(
            address.clone(),
            timeouts,
            Purpose::Renewal,
            Some(Arc::clone(&pool)),
        );
        Self {
            link: Link::new(address, timeouts, Purpose::Requests, None),
            pool,
            renewal_context: Arc::new(RenewalContext {
                link: renewals,
                reporter,
                is_member,
            }),
            renewal_thread,
            retry_timeout: settings.retry_timeout,
            longest_request: timeouts.request(),
            warm_up: Once::new(),
        }
    }

    /// Connects the renewal thread before the first lock needs it.
    pub fn warm_up(&self) {
        self.warm_up
            .call_once(|| self.renewal_thread.maintain(&self.renewal_context));
    }

    pub fn address(&self) -> &Address {
        &self.link.address
    }

    pub fn report(&self, identity: &RequestIdentity, kind: EventKind) {
        self.renewal_context.report(identity, kind);
    }
}
