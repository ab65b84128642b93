//! The locks of several servers, and one of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis_dlock_client::{self as client, Server};

use crate::error::{Error, RunError};
use crate::events::{Event, EventKind, Hook};
use crate::guard::Guard;
use crate::round::{Request, acquire};
use crate::servers::Servers;
use crate::thread::Thread;

/// The locks of several independent servers. Cheap to clone; one per application is enough. One thread owns all its
/// connections.
#[derive(Clone)]
pub struct Locks {
    servers: Arc<Servers>,
}

/// How to reach the servers, and a hook for events.
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    node_timeout: Duration,
    hook: Hook,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            node_timeout: Duration::from_secs(1),
            hook: Hook::default(),
        }
    }
}

impl Settings {
    /// How long a server may take to reply before it counts as down. Much longer than a round trip, much shorter than a
    /// lease. Default: 1 s.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Calls `hook` for every event, in the thread of the locks or in a task that uses them: it must not block.
    pub fn on_event(mut self, hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.hook = Hook::calling(hook);
        self
    }

    /// Of the locks on one of the servers.
    fn for_server(&self, label: Arc<str>, thread: &Thread) -> client::Settings {
        let hook = self.hook.clone();
        client::Settings::default()
            .response_timeout(self.node_timeout)
            .background(thread.runtime.clone())
            .untraced()
            .on_event(move |event| {
                let server = Arc::clone(&label);
                let kind = match &event.kind {
                    client::EventKind::RenewFailed { error } => EventKind::RenewFailed {
                        server,
                        error: error.clone(),
                    },
                    client::EventKind::RenewedAgain => EventKind::RenewedAgain { server },
                    _ => return,
                };
                hook.report(&Event {
                    key: Arc::clone(&event.key),
                    owner: event.owner.clone(),
                    kind,
                });
            })
    }
}

impl Locks {
    /// The locks of these servers: URLs, or clients of redis-rs. All clients of a quorum must name the same servers.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: a URL is invalid or named twice, or there is none. Two names of one server are found at the
    /// first acquisition.
    pub fn open<S: TryInto<Server>>(servers: impl IntoIterator<Item = S>) -> Result<Self, Error>
    where
        Error: From<S::Error>,
    {
        Self::with(servers, Settings::default())
    }

    /// As [`Locks::open`], with other settings than the default ones.
    pub fn with<S: TryInto<Server>>(
        servers: impl IntoIterator<Item = S>,
        settings: Settings,
    ) -> Result<Self, Error>
    where
        Error: From<S::Error>,
    {
        let (mut named, mut labels): (Vec<Server>, Vec<Arc<str>>) = (vec![], vec![]);
        for server in servers {
            let server = server.try_into()?;
            let label = server.to_string().into();
            if labels.contains(&label) {
                let text = format!("{label} is named twice: name each server once");
                return Err(Error::Invalid(text));
            }
            if !server.is_one() {
                let text =
                    format!("{label} is not a single server: name the independent servers of a quorum");
                return Err(Error::Invalid(text));
            }
            named.push(server);
            labels.push(label);
        }
        if named.is_empty() {
            return Err(Error::Invalid("a majority needs at least one server".into()));
        }
        let thread = Thread::start()?;
        let open = |(server, label): (_, &Arc<str>)| {
            client::Locks::with(server, settings.for_server(Arc::clone(label), &thread))
        };
        let locks: Result<_, client::Error> = named.into_iter().zip(&labels).map(open).collect();
        let servers = Servers::new(locks?, labels, settings.node_timeout, settings.hook, thread);
        Ok(Self { servers })
    }

    /// The lock of a key.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock {
            servers: Arc::clone(&self.servers),
            request: Request {
                key: key.as_ref().into(),
                lease: Duration::from_secs(30),
                is_shared: false,
                max_hold: None,
                waits: true,
                timeout: Duration::MAX,
            },
        }
    }

    /// Acquires a lock with the default options. See [`Lock::acquire`].
    pub async fn acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).acquire().await
    }

    /// Whether a majority of the servers replies, within 1 s: for readiness probes.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuorum`] names those that do not, and why.
    pub async fn ping(&self) -> Result<(), Error> {
        self.servers.ping().await
    }

    /// Resolves when all releases and cancellations in the background are done.
    pub async fn shutdown(&self) {
        join_all(self.servers.locks.iter().map(client::Locks::shutdown)).await;
    }
}

/// One lock, and how to acquire it.
#[derive(Clone)]
#[must_use = "a lock is not held before it is acquired"]
pub struct Lock {
    servers: Arc<Servers>,
    request: Request,
}

impl Lock {
    /// How long the lock is held without renewal. Default: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.request.lease = lease;
        self
    }

    /// How long [`Lock::acquire`] waits. Default: no limit.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout = timeout;
        self
    }

    /// Any number of owners may share the lock, as readers do. Such a guard has no fence.
    pub fn shared(mut self) -> Self {
        self.request.is_shared = true;
        self
    }

    /// The lock is held for at most this time on each server, renewed or not.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.request.max_hold = Some(time);
        self
    }

    /// Waits for the lock. Cancel safe: if the future is dropped, the request is cancelled, what it was granted is
    /// released, and its places in the queues are lost.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::Invalid`].
    pub async fn acquire(&self) -> Result<Guard, Error> {
        match self.request(true).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::Invalid("the servers' module is too old: update it".into())),
        }
    }

    /// Acquires the lock if it is free. `None`: others hold it, or wait for it.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuorum`]: too few servers could be reached; [`Error::Invalid`].
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.request(false).await
    }

    /// Acquires the lock, runs `work` under it, then releases it. When the lock is lost, the work is cancelled: its future
    /// is dropped at its next `await`.
    ///
    /// # Errors
    ///
    /// [`RunError`] says whether the work was started, cancelled or finished. It converts to [`Error`].
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
        self.try_run(async |guard| Ok(work(guard).await)).await
    }

    /// As [`Lock::run`], for work that can fail: then the error is [`RunError::Failed`].
    pub async fn try_run<T, E>(
        &self,
        work: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<T, RunError<T, E>> {
        let guard = self.acquire().await.map_err(RunError::NotAcquired)?;
        guard.run(work).await
    }

    async fn request(&self, waits: bool) -> Result<Option<Guard>, Error> {
        let request = Request {
            waits,
            ..self.request.clone()
        };
        let servers = Arc::clone(&self.servers);
        self.servers.thread.run(acquire(servers, request)).await
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.servers.labels).finish()
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = String::from_utf8_lossy(&self.request.key);
        f.debug_tuple("Lock").field(&key).finish()
    }
}
