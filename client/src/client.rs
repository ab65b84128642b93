use std::sync::{Arc, Once};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::connect::{Address, BlockingPool, Link, Purpose, Timeouts};
use crate::events::{Event, EventKind, Hook, Reporter};
use crate::identity::RequestIdentity;
use crate::release::release_in_background;
use crate::renewal::RenewalThread;
use crate::renewal::{RenewalContext, SharedHold};

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    timeouts: Timeouts,
    retry_timeout: Duration,
    hook: Hook,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeouts: Timeouts {
                connect: Duration::from_secs(2),
                response: Duration::from_secs(1),
            },
            retry_timeout: Duration::from_secs(5),
            hook: Hook::default(),
        }
    }
}

impl Settings {
    /// How long the server may take to accept a connection. Default: 2 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.connect = timeout;
        self
    }

    /// How long the server may take to answer a request, waiting for a lock aside. Default: 1 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.timeouts.response = timeout;
        self
    }

    /// For how long a request that does not wait is tried again when the connection is lost. Default: 5 s.
    pub fn retry_timeout(mut self, retry_timeout: Duration) -> Self {
        self.retry_timeout = retry_timeout;
        self
    }

    /// Calls `hook` whenever something happens to a lock, in the task or thread where it happens: it must be quick,
    /// and not block. Mostly that is the one thread in the background. As long as the hook does not return there, no
    /// lock of this client is renewed and no [token](crate::Guard::token) cancelled; a call of
    /// `blocking_*` in it never returns. What takes longer, writing to a terminal or a pipe for
    /// instance, belongs into a thread of its own. The same is true of a subscriber of `tracing`.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use redis_dlock_client::{Settings, EventKind};
    ///
    /// static LOST: AtomicU64 = AtomicU64::new(0);
    /// let settings = Settings::default().on_event(|event| {
    ///     if let EventKind::Lost { .. } = event.kind {
    ///         LOST.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// ```
    pub fn on_event(mut self, hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.hook = Hook::new(hook);
        self
    }
}

/// What all locks and guards of one address share.
pub(crate) struct Client {
    link: Arc<Link>,
    pool: BlockingPool,
    context: Arc<RenewalContext>,
    renewal_thread: Arc<RenewalThread>,
    retry_timeout: Duration,
    longest_request: Duration,
    warm_up: Once,
}

impl Client {
    /// Clients of several servers may have one keeper.
    pub fn new(address: Address, settings: Settings, renewal_thread: Arc<RenewalThread>) -> Self {
        let Settings {
            timeouts,
            retry_timeout,
            hook,
        } = settings;
        Self {
            link: Link::new(address.clone(), timeouts, Purpose::Requests),
            pool: BlockingPool::new(address.clone(), timeouts),
            context: Arc::new(RenewalContext {
                link: Link::new(address.clone(), timeouts, Purpose::Renewal),
                reporter: Reporter::new(address, hook),
            }),
            renewal_thread,
            retry_timeout,
            longest_request: timeouts.request(),
            warm_up: Once::new(),
        }
    }

    /// The connection for requests of the application's tasks, in their runtime.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// The connections for requests that wait.
    pub fn pool(&self) -> &BlockingPool {
        &self.pool
    }

    /// What the thread in the background needs for the holds of this client.
    pub fn renewal_context(&self) -> &Arc<RenewalContext> {
        &self.context
    }

    /// The thread in the background.
    pub fn renewal_thread(&self) -> &Arc<RenewalThread> {
        &self.renewal_thread
    }

    /// Connects the background before it is needed, so that the first renewal of a short lease does not have to
    /// wait for that.
    pub fn warm_up(&self) {
        self.warm_up.call_once(|| {
            let link = Arc::clone(&self.context.link);
            self.renewal_thread.spawn(async move { drop(link.route().await) });
        });
    }

    pub fn address(&self) -> &Address {
        self.context.reporter.server()
    }

    pub fn retry_timeout(&self) -> Duration {
        self.retry_timeout
    }

    /// For how long a request that does not wait may be under way, connecting included.
    pub fn longest_request(&self) -> Duration {
        self.longest_request
    }

    pub fn report(&self, identity: &RequestIdentity, kind: EventKind<'_>) {
        self.context.reporter.report(identity, kind);
    }

    /// Gives a hold up, and leaves its release to the background. Never blocks.
    pub fn let_go(self: &Arc<Self>, held: Arc<SharedHold>) {
        let release = held.with(|hold| hold.give_up(BootInstant::now()));
        self.renewal_thread.unwatch(&held);
        if release.is_needed() {
            let errand = release_in_background(Arc::clone(self), held, release);
            self.renewal_thread.spawn(errand);
        }
    }
}
