use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::connect::{Address, Link, Timeouts, WaitingRoom};
use crate::error::Error;
use crate::events::{Event, Reporter, What};
use crate::held::Held;
use crate::keeper::Keeper;
use crate::release::release_in_background;
use crate::ticket::Ticket;

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    timeouts: Timeouts,
    patience: Duration,
    reporter: Reporter,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeouts: Timeouts {
                connect: Duration::from_secs(2),
                response: Duration::from_secs(1),
            },
            patience: Duration::from_secs(5),
            reporter: Reporter::default(),
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
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Calls `hook` whenever something happens to a lock, in the task or thread where it happens: it should
    /// be quick, and not block.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use redis_dlock_client::{Settings, What};
    ///
    /// static LOST: AtomicU64 = AtomicU64::new(0);
    /// let settings = Settings::default().on_event(|event| {
    ///     if let What::Lost { .. } = event.what {
    ///         LOST.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// });
    /// ```
    pub fn on_event(mut self, hook: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.reporter = Reporter::new(hook);
        self
    }
}

/// What all locks and guards of one address share.
pub(crate) struct Client {
    address: Address,
    settings: Settings,
    link: Arc<Link>,
    room: WaitingRoom,
    keeper: OnceLock<Result<Keeper, Error>>,
}

impl Client {
    pub fn new(address: Address, settings: Settings) -> Self {
        Self {
            link: Link::new(address.clone(), settings.timeouts),
            room: WaitingRoom::new(address.clone(), settings.timeouts),
            keeper: OnceLock::new(),
            address,
            settings,
        }
    }

    /// The connection for requests of the application's tasks, in their runtime.
    pub fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// The connections for requests that wait.
    pub fn room(&self) -> &WaitingRoom {
        &self.room
    }

    /// The thread in the background; starts it at the first call.
    pub fn keeper(&self) -> Result<&Keeper, Error> {
        let start = || {
            let link = Link::new(self.address.clone(), self.settings.timeouts);
            Keeper::start(link, self.settings.reporter.clone())
        };
        self.keeper.get_or_init(start).as_ref().map_err(Clone::clone)
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    pub fn patience(&self) -> Duration {
        self.settings.patience
    }

    /// For how long a request that does not wait may be under way, connecting included.
    pub fn longest_request(&self) -> Duration {
        self.settings.timeouts.connect + self.settings.timeouts.response
    }

    pub fn report(&self, ticket: &Ticket, what: What<'_>) {
        self.settings.reporter.report(&ticket.key, &ticket.owner, what);
    }

    /// Gives a hold up, and leaves its release to the background. Never blocks.
    pub fn let_go(self: &Arc<Self>, held: Arc<Held>) {
        let release = held.with(|hold| hold.give_up());
        let Ok(keeper) = self.keeper() else {
            return;
        };
        keeper.unwatch(&held);
        if release.is_needed() {
            keeper.hand_over(release_in_background(Arc::clone(self), held, release));
        }
    }
}
