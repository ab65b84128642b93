//! All locks of a deployment, and one of them.

use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, cmd};
use tokio::runtime;

use crate::acquire::{Acquiring, Wanted, acquire};
use crate::background::Handle;
use crate::command::{Limit, LockInfo, Owner, rounded_up};
use crate::error::Error;
use crate::events::{Event, Hook};
use crate::guard::{Guard, RunError};
use crate::hold::{BootInstant, Plan, random_share};
use crate::server::Server;

/// All locks of a deployment. Cheap to clone; one per application is enough.
///
/// A task sends its requests itself, over a connection that all tasks of its tokio runtime share. A thread in the background
/// renews all leases, and reads the answers to requests that wait; it has two connections of its own. So a runtime that is
/// blocked, idle or gone loses no lock, and the locks can be used in several runtimes at once, in tests with a runtime
/// each, and in threads with any `block_on`, whose requests the thread sends. Open it after a fork, as daemons and servers
/// with worker processes do.
#[derive(Clone)]
pub struct Locks {
    handle: Arc<Handle>,
}

/// How to reach the servers, and a hook for events.
#[derive(Clone, Debug)]
#[must_use]
pub struct Settings {
    response_timeout: Duration,
    runtime: Option<runtime::Handle>,
    hook: Hook,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            response_timeout: Duration::from_secs(1),
            runtime: None,
            hook: Hook::default(),
        }
    }
}

impl Settings {
    /// How long to wait for a connection, and for a reply. Requests whose reply was lost are sent again for three times as
    /// long in all, an acquisition that waits until it is granted, and a release until the lease ends. Without
    /// a connection, those that need not wait end at once. Default: 1 s.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Renews leases in this runtime instead of in a thread of its own, so that several `Locks` can share one. It must have
    /// sockets and timers, and must not be blocked. When it ends, what is held is reported as lost, and nothing is acquired
    /// any more.
    pub fn background(mut self, runtime: runtime::Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Events do not go to `tracing`: of a lock that is one of several, for instance, whose events nobody wants to see.
    pub fn untraced(mut self) -> Self {
        self.hook.is_untraced = true;
        self
    }

    /// Calls `hook` for every event, in the task that acquires or releases the lock, or in the background, where leases are
    /// renewed: it must not block. The same applies to subscribers of `tracing`.
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
        self.hook.callback = Some(Arc::new(hook));
        self
    }
}

impl Locks {
    /// The locks of the server at a URL of redis-rs (`redis://`, `rediss://` or `unix://`), or of a [`redis::Client`],
    /// `ClusterClient` or `SentinelClient`. Nothing is sent yet: the first request finds out whether the server is there.
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
            runtime,
            hook,
        } = settings;
        let server = server.try_into()?;
        Ok(Self::of(match runtime {
            Some(runtime) => Handle::start_in(&runtime, server, response_timeout, hook),
            None => Handle::start(server, response_timeout, hook)?,
        }))
    }

    pub(crate) fn of(handle: impl Into<Arc<Handle>>) -> Self {
        Self {
            handle: handle.into(),
        }
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
        query::<redis::Value>(&self.handle, cmd("PING"), Duration::from_secs(1))
            .await
            .map(drop)
    }

    /// Sends a command that may be sent twice, on the connection that the locks use, which it must not block: to ask the
    /// server for its time, for instance. In a cluster it needs a key.
    ///
    /// # Errors
    ///
    /// That of the command, or the cause if there is no reply within three times the response timeout.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        query(&self.handle, command.clone(), self.handle.session().patience()).await
    }

    /// Resolves when all releases in the background are done.
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
        if self.handle.session().is_at_home() {
            self.handle.session().exit.settle().await;
        }
    }
}

async fn query<T: FromRedisValue>(handle: &Handle, command: Cmd, within: Duration) -> Result<T, Error> {
    let session = Arc::clone(handle.session());
    session.check_background()?;
    let begun = BootInstant::now();
    let querying = |_| async move {
        let left = within.saturating_sub(BootInstant::now() - begun);
        session.query(command, true, left).await
    };
    let reply = handle.session().run(querying).await?;
    Ok(T::from_redis_value(reply).map_err(RedisError::from)?)
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locks")
            .field(self.handle.session().links.label())
            .finish()
    }
}

/// The longest time to wait; more is without a limit.
const LONGEST_WAIT: Duration = Duration::from_secs(1 << 32);

/// One lock, and how to acquire it.
///
/// Without an explicit owner each acquisition has a unique one. For re-entry and for deadlock detection, set
/// [an owner](Lock::owner), and use it in one task at a time.
#[derive(Clone)]
#[must_use = "a lock is not held before it is acquired"]
pub struct Lock {
    handle: Arc<Handle>,
    key: Arc<[u8]>,
    key_hash: u64,
    owner: Option<Owner>,
    lease: Duration,
    timeout: Duration,
    limit: Option<u32>,
    is_shared: bool,
    min_fence: Option<NonZeroU64>,
    max_hold: Option<Duration>,
    release_after: Option<Duration>,
}

impl Lock {
    fn new(handle: &Arc<Handle>, key: &[u8]) -> Self {
        Self {
            handle: Arc::clone(handle),
            key: key.into(),
            key_hash: BuildHasherDefault::<DefaultHasher>::default().hash_one(key),
            owner: None,
            lease: Duration::from_secs(30),
            timeout: Duration::MAX,
            limit: None,
            is_shared: false,
            min_fence: None,
            max_hold: None,
            release_after: None,
        }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// How long the lock is held without renewal, in whole ms, rounded up: at most `dlock.max-lease-ms` of the server.
    /// Default: 30 s. A lease that is not longer than a round trip to the server and 3 ms expires before it is held, and is
    /// asked for again.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long [`Lock::acquire`] waits. Default: no limit. Zero: it does not wait if others hold the lock.
    /// `tokio::time::timeout` does the same; this one says in [`Error::Timeout`] what the server said last, and for how long.
    /// The first request of a runtime waits for its connection in any case, for at most the response timeout.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Any number of owners may share the lock, as readers do. Not together with [`Lock::limit`].
    pub fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }

    /// At most `limit` owners may hold the lock at once, 1 to 2147483647: a semaphore.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The lock is held for at most this time, renewed or not: then the guard is lost, and others can acquire the lock. So
    /// a stuck holder does not keep it forever. As a lease, it must be longer than a round trip and 3 ms. Default: no
    /// maximum.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.max_hold = Some(time);
        self
    }

    /// The lock stays taken for this time after the grant, even if it is released before, so that a job that several hosts
    /// start runs once per period. Work that takes longer keeps the lock until it ends. A guard that is dropped, and
    /// a [`Lock::try_run`] whose work fails, release it at once. At most `dlock.max-lease-ms` of the server, or the release
    /// fails and the lock is held until its lease expires. Default: none.
    ///
    /// The lease ends at that time. If less than 1 s is left, or if the lease had to be renewed beyond that time because
    /// two thirds of it were over, a release in the background ends it then; if the process ends before that, the lock
    /// stays until its lease expires.
    ///
    /// ```no_run
    /// # async fn nightly(locks: redis_dlock_client::Locks) -> Result<(), redis_dlock_client::Error> {
    /// use std::time::Duration;
    ///
    /// let lock = locks.lock("nightly").release_after(Duration::from_secs(30));
    /// if let Some(guard) = lock.try_acquire().await? {
    ///     // ... the job
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn release_after(mut self, time: Duration) -> Self {
        self.release_after = Some(time);
        self
    }

    /// The owner. All who use the same owner share its locks: a lock that it holds is granted again at once, and
    /// counted. Use an owner in one task at a time: two processes with the same owner hold the lock together, under the
    /// same [fence](Guard::fence), so that no check of fences tells them apart. To make a readable name unique, append
    /// a unique owner: `format!("{name}:{}", Owner::unique())`. Default: a unique one for each acquisition.
    pub fn owner(mut self, owner: impl Into<Owner>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// For a lock on several servers: the grant has at least this fence, 1 to 2^53 - 1, and its fence can be raised. The
    /// servers must have `dlock.quorum yes`.
    pub fn min_fence(mut self, fence: u64) -> Self {
        self.min_fence = NonZeroU64::new(fence);
        self
    }

    /// Acquires the lock; waits for it in the server's queue, which is FIFO. That takes no connection: any number of tasks
    /// can wait.
    ///
    /// Cancel safe: if the future is dropped, the request is cancelled, even if it was granted in the meantime, and *its
    /// place in the queue is lost*. In a loop with `select!`, keep the future across iterations:
    ///
    /// ```no_run
    /// # async fn serve(locks: redis_dlock_client::Locks) -> Result<(), redis_dlock_client::Error> {
    /// # let mut tick = tokio::time::interval(std::time::Duration::from_secs(1));
    /// let lock = locks.lock("orders:42");
    /// let mut acquiring = std::pin::pin!(lock.acquire());
    /// let guard = loop {
    ///     tokio::select! {
    ///         guard = &mut acquiring => break guard?,
    ///         _ = tick.tick() => println!("still waiting"),
    ///     }
    /// };
    /// # guard.release().await }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]: it was not granted in time. [`Error::Deadlock`], [`Error::Evictable`] and others: waiting does
    /// not help. It keeps trying while the cause may pass, such as a lost connection or a full queue; but if the server was
    /// never reached, it fails at once.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        match self.request(!self.timeout.is_zero()).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::Timeout {
                key: String::from_utf8_lossy(&self.key).into_owned(),
                waited: Duration::ZERO,
                last: None,
                last_for: Duration::ZERO,
            }),
        }
    }

    /// Acquires the lock if it is free and nobody waits for it; `None` if not.
    ///
    /// # Errors
    ///
    /// As for [`Lock::acquire`]. If its reply is lost the request is sent again for a while; the same acquisition never
    /// counts twice.
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
        let guard = self.acquire().await.map_err(RunError::NotAcquired)?;
        guard.run(async |guard| Ok(work(guard).await)).await
    }

    /// As [`Lock::run`], for work that can fail: then the lock is released at once, whatever
    /// [`Lock::release_after`] says, and the error is [`RunError::Failed`].
    pub async fn try_run<T, E>(
        &self,
        work: impl AsyncFnOnce(&Guard) -> Result<T, E>,
    ) -> Result<T, RunError<T, E>> {
        let guard = self.acquire().await.map_err(RunError::NotAcquired)?;
        guard.run(work).await
    }

    /// The holders and waiters; `None` if the lock is free and nobody waits.
    pub async fn info(&self) -> Result<Option<LockInfo>, Error> {
        let command = cmd("DLOCK.INFO").arg(&*self.key).take();
        query(&self.handle, command, self.handle.session().patience()).await
    }

    async fn request(&self, waits: bool) -> Result<Option<Guard>, Error> {
        let (limit, session) = (self.validate()?, self.handle.session());
        session.check_background()?;
        let begun = BootInstant::now();
        let acquiring = |link| {
            let handle = Arc::clone(&self.handle);
            let acquiring = Acquiring::new(Arc::clone(session), link, self.wanted(begun, limit, waits));
            // Here already: if the caller is gone by then, the guard is dropped. Boxed, so that its type does not nest in
            // those of all callers, for which the compiler has a limit.
            let work = async move { Ok(acquire(acquiring).await?.map(|held| Guard::new(&handle, held))) };
            Box::pin(work) as Pin<Box<dyn Future<Output = _> + Send>>
        };
        session.run(acquiring).await
    }

    fn wanted(&self, begun: BootInstant, limit: Limit, waits: bool) -> Wanted {
        Wanted {
            begun,
            key: Arc::clone(&self.key),
            key_hash: self.key_hash,
            owner: self.owner.clone(),
            limit,
            min_fence: self.min_fence,
            plan: self.plan(),
            waits,
            timeout: (self.timeout < LONGEST_WAIT).then_some(self.timeout),
        }
    }

    /// Rejects what no server accepts, before anything is sent.
    fn validate(&self) -> Result<Limit, Error> {
        let owner = self.owner.as_ref().map(|owner| owner.as_bytes().len());
        let limit = match (self.is_shared, self.limit) {
            (true, None) => Limit::Shared,
            (false, None) => Limit::Mutex,
            (false, Some(limit @ 1..=0x7fff_ffff)) => Limit::AtMost(limit),
            (false, Some(_)) => return invalid("the limit must be 1 to 2147483647"),
            (true, Some(_)) => return invalid("a lock is either shared or has a limit, not both"),
        };
        if self.key.is_empty() {
            return invalid("the key of a lock must not be empty");
        }
        if owner.is_some_and(|length| !(1..=512).contains(&length)) {
            return invalid("the owner must be 1 to 512 bytes long");
        }
        for (time, what) in [
            (Some(self.lease), "the lease"),
            (self.max_hold, "max_hold"),
            (self.release_after, "release_after"),
        ] {
            if time.is_some_and(|time| time.is_zero()) {
                return invalid(&format!("{what} must be longer than 0"));
            }
        }
        Ok(limit)
    }

    fn plan(&self) -> Plan {
        Plan {
            lease: rounded_up(self.lease),
            // With jitter: locks that were acquired at the same time are not renewed at the same time forever.
            renew_after: (self.lease / 3).mul_f64(random_share(0.85..=1.0)),
            max_hold: self.max_hold.map(rounded_up),
            release_after: self.release_after.map(rounded_up),
        }
    }
}

fn invalid<T>(text: &str) -> Result<T, Error> {
    Err(Error::Invalid(text.into()))
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lock")
            .field(&String::from_utf8_lossy(&self.key))
            .finish()
    }
}
