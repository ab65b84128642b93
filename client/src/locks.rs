//! All locks of a deployment.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::cmd;

use crate::driver::Handle;
use crate::error::Error;
use crate::events::{Event, Hook};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::request::Operation;
use crate::server::Server;

/// All locks of a deployment. Cheap to clone; one per application is enough.
///
/// Each has one thread, which owns two connections to each server, one for requests and one for the answers to requests
/// that wait, and renews all leases. So it can be used in any async runtime, in several at once, in tests with a runtime
/// each, and in threads with any `block_on`. Open it after a fork, as daemons and servers with worker processes do.
#[derive(Clone)]
pub struct Locks {
    pub(crate) handle: Arc<Handle>,
}

/// How to reach the servers, and a hook for events.
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    response_timeout: Duration,
    hook: Hook,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            response_timeout: Duration::from_secs(1),
            hook: Hook::default(),
        }
    }
}

impl Settings {
    /// How long to wait for a connection, and for a reply. After a lost connection requests are sent again, for three
    /// times as long in all; an acquisition that waits, until it is granted; a release, until the lease ends. Default:
    /// 1 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Calls `hook` for every event, in the thread of the locks: it must not block, because leases are renewed there. The
    /// same applies to subscribers of `tracing`.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicI64, Ordering};
    /// use redis_dlock_client::{EventKind, Settings};
    ///
    /// static HELD: AtomicI64 = AtomicI64::new(0);
    /// let settings = Settings::default().on_event(|event| match event.kind {
    ///     EventKind::Acquired { .. } => _ = HELD.fetch_add(1, Ordering::Relaxed),
    ///     EventKind::Ended { .. } => _ = HELD.fetch_sub(1, Ordering::Relaxed),
    ///     _ => {}
    /// });
    /// ```
    pub fn on_event(mut self, hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.hook = Hook(Some(Arc::new(hook)));
        self
    }
}

impl Locks {
    /// The locks of the server at an URL, as redis-rs has it: `redis://`, `rediss://`, `unix://`; or of a
    /// [`redis::Client`], `ClusterClient` or `SentinelClient`. Nothing is sent yet: the first request finds out whether
    /// the server is there.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: the URL is invalid. [`Error::Redis`]: the system cannot create a thread.
    pub fn open<S: TryInto<Server>>(server: S) -> Result<Self, Error>
    where
        Error: From<S::Error>,
    {
        Self::with(server, Settings::default())
    }

    /// As [`Locks::open`], with other settings than the default ones.
    pub fn with<S: TryInto<Server>>(server: S, settings: Settings) -> Result<Self, Error>
    where
        Error: From<S::Error>,
    {
        let Settings {
            response_timeout,
            hook,
        } = settings;
        let handle = Handle::start(server.try_into()?, response_timeout, hook)?;
        Ok(Self {
            handle: Arc::new(handle),
        })
    }

    /// The lock of a key.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock::new(&self.handle, key.as_ref())
    }

    /// Acquires a lock with the default options. See [`Lock::acquire`].
    pub async fn acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).acquire().await
    }

    /// Whether the server replies, within 1 s: for readiness probes.
    ///
    /// # Errors
    ///
    /// The cause, at once if the server refuses the connection or its name is unknown.
    pub async fn ping(&self) -> Result<(), Error> {
        let limit = Duration::from_secs(1);
        self.handle.query(cmd("PING"), true, limit).await.map(drop)
    }

    /// Resolves when all locks that were given up are released.
    ///
    /// Call it at the end of a graceful shutdown, after all tasks have ended: guards that are dropped are released in the
    /// background. A program that does not call it waits for that too when it ends, for at most 100 ms.
    ///
    /// ```no_run
    /// # async fn main_task() -> Result<(), redis_dlock_client::Error> {
    /// use std::time::Duration;
    /// use redis_dlock_client::Locks;
    ///
    /// let locks = Locks::open("redis://127.0.0.1/")?;
    /// let mut tasks = tokio::task::JoinSet::<()>::new();
    /// // ... tasks that hold locks
    /// tasks.shutdown().await;
    /// // A server that is away is retried until the leases expire: do not wait that long.
    /// let _ = tokio::time::timeout(Duration::from_secs(5), locks.shutdown()).await;
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(&self) {
        let _: Result<(), Error> = self.handle.ask(Operation::Settle).await;
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locks").field(&self.handle.label).finish()
    }
}
