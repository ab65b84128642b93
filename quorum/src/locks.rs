use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, FromRedisValue};

use crate::acquire::{self, AcquireRequest};
use crate::client::{Client, Settings};
use crate::command::{GetInfo, GetOwner, LockInfo};
use crate::connect::Address;
use crate::error::Error;
use crate::events::Reporter;
use crate::guard::{Guard, adopt};
use crate::identity::{Limit, RequestIdentity};
use crate::options::Options;
use crate::owner::Owner;
use crate::parts::GuardParts;
use crate::renewal::RenewalThread;
use crate::replicas::Replicas;
use crate::run::RunError;

/// All locks of a server. Cheap to clone; one per application is enough.
///
/// Its connections live on the runtime in which they were first needed. With several single-threaded runtimes, give
/// each a `Locks` of its own: otherwise tasks of one may wait for the one that drives the connection. Renewals are not
/// affected, they have a thread of their own.
///
/// Open it after a fork, as daemons and servers with worker processes do: the child does not have the renewal thread.
/// There nothing is renewed, no loss is detected, and `blocking_*` methods never return.
#[derive(Clone)]
pub struct Locks {
    pub(crate) client: Arc<Client>,
}

/// One lock, and how to acquire it.
///
/// Without an explicit owner each acquisition has a unique one. For re-entry and for deadlock detection, set
/// [an owner](Lock::owner), and use it in one task at a time.
#[derive(Clone)]
#[must_use = "a lock is not held before it is acquired"]
pub struct Lock {
    pub(crate) client: Arc<Client>,
    pub(crate) key: Arc<[u8]>,
    pub(crate) owner: Option<Owner>,
    pub(crate) options: Options,
    replicas: Option<Replicas>,
    explains: bool,
}

impl Locks {
    /// The locks of the server at an address: text, [`Endpoints`](crate::Endpoints), or a [`redis::Client`]. Nothing is
    /// sent yet: the first request finds out whether the server is there.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: the address is invalid. [`Error::Redis`]: the system cannot create a thread.
    pub fn open<A: TryInto<Address>>(address: A) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        Self::with(address, Settings::default())
    }

    /// As [`Locks::open`], with other settings than the default ones.
    pub fn with<A: TryInto<Address>>(address: A, settings: Settings) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        let reporter = Arc::new(Reporter::new(settings.hook.clone()));
        let (address, renewal_thread) = (address.try_into()?, RenewalThread::start()?);
        let client = Client::new(address, &settings, renewal_thread, reporter, false);
        Ok(Self {
            client: Arc::new(client),
        })
    }

    /// The lock of a key.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock {
            client: Arc::clone(&self.client),
            key: key.as_ref().into(),
            owner: None,
            options: Options::default(),
            replicas: None,
            explains: false,
        }
    }

    /// Acquires a lock with the default options. See [`Lock::acquire`].
    pub async fn acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).acquire().await
    }

    /// Acquires a lock if it is free, with the default options. See [`Lock::try_acquire`].
    pub async fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).try_acquire().await
    }

    /// Whether locks can be acquired: for readiness probes. Acquires and releases the lock of `key`, which nothing else
    /// should use; this checks the connection, the module, permissions, and settings of the server. A key that is held,
    /// for instance by another probe, is no error.
    ///
    /// ```no_run
    /// # async fn ready(locks: redis_dlock_quorum::Locks) -> bool {
    /// locks.check("health").await.is_ok()
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_acquire`] and [`Guard::release`]. [`Error::ModuleMissing`], [`Error::Evictable`],
    /// [`Error::Grace`] and others say what to do.
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.try_acquire(key).await {
            Ok(guard) => guard.release().await.map(drop),
            Err(Error::Busy) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Continues a hold that [`Guard::into_parts`] gave away, in this or another process: renews its lease, and from then
    /// on renews it like any other.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]: the lease has expired since, or the lock was lost. Others as for [`Guard::extend`].
    pub async fn adopt(&self, parts: GuardParts) -> Result<Guard, Error> {
        adopt(&self.client, parts).await
    }

    /// Resolves when all releases and cancellations that are in progress in the background are done or given up.
    ///
    /// Call it at the end of a graceful shutdown, after all tasks have ended: the guards that they dropped are released
    /// in the background, and a process that ends before that leaves the locks to their leases.
    ///
    /// ```no_run
    /// # async fn main_task() -> Result<(), redis_dlock_quorum::Error> {
    /// use std::time::Duration;
    /// use redis_dlock_quorum::Locks;
    ///
    /// let locks = Locks::open("redis://127.0.0.1/")?;
    /// let mut tasks = tokio::task::JoinSet::<()>::new();
    /// // ... tasks that hold locks
    /// tasks.shutdown().await;
    /// // A server that is unavailable is retried until the leases expire: do not wait that long.
    /// let _ = tokio::time::timeout(Duration::from_secs(5), locks.settle()).await;
    /// # Ok(()) }
    /// ```
    pub async fn settle(&self) {
        self.client.renewal_thread.settle().await;
    }

    /// How many events of the renewal thread were dropped, because a hook or a subscriber was too slow. See
    /// [`Settings::on_event`].
    pub fn dropped_events(&self) -> u64 {
        self.client.renewal_context.reporter.dropped()
    }
}

impl Lock {
    /// How long the lock is held without renewal, 1 ms to `dlock.max-lease-ms` of the server. Default: 30 s. A lease
    /// that is not longer than a round trip to the server and 3 ms expires before it is held: then [`Lock::acquire`]
    /// retries until [`Error::Timeout`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How long [`Lock::acquire`] waits; [`Duration::MAX`]: without a timeout. Default: 30 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = wait;
        self
    }

    /// Any number of owners may share the lock, as readers do.
    pub fn shared(mut self) -> Self {
        self.options.limit = Limit::Shared;
        self
    }

    /// At most `limit` owners may hold the lock at once, 1 to 2147483647: a semaphore.
    pub fn limit(mut self, limit: u32) -> Self {
        self.options.limit = Limit::AtMost(limit);
        self
    }

    /// Whether the lease is renewed, after about a third of it, as long as the guard lives. Default: yes.
    pub fn auto_renew(mut self, renew: bool) -> Self {
        self.options.renews = renew;
        self
    }

    /// The guard is lost after this time, renewed or not, so that a stuck holder does not keep the lock forever.
    /// Default: no maximum.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.options.max_hold = Some(time);
        self
    }

    /// The lock is held for at least this time after the grant, so that a job that several hosts start is done once in a
    /// period: a release before that stops the renewals and extends the lease to the rest of the time. A guard that is
    /// dropped, because the work failed for instance, is released at once; a process that crashes keeps the lock for no
    /// longer than its lease. At most `dlock.max-lease-ms` of the server. Default: none.
    ///
    /// ```no_run
    /// # async fn nightly(locks: redis_dlock_quorum::Locks) -> Result<(), redis_dlock_quorum::Error> {
    /// use std::time::Duration;
    ///
    /// let lock = locks.lock("nightly").at_least(Duration::from_secs(600));
    /// if let Ok(guard) = lock.try_acquire().await {
    ///     // ... the job
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn at_least(mut self, time: Duration) -> Self {
        self.options.at_least = Some(time);
        self
    }

    /// Has a refused [`Lock::try_acquire`] say who holds the lock, and since when: [`Error::HeldBy`] instead of
    /// [`Error::Busy`]. This takes a second request, after which the holder may be another one or gone.
    pub fn explain(mut self) -> Self {
        self.explains = true;
        self
    }

    /// The lock counts as acquired only when this many replicas have acknowledged it; it is released if they have not
    /// within `timeout` after the grant. Then it survives a failover to one of them. This takes a connection of its own
    /// and a round trip to the replicas, during which the lease runs. It does not apply to renewals and releases.
    /// Default: none.
    pub fn replicas(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replicas = Some(Replicas {
            needed: replicas,
            fsynced: false,
            timeout,
        });
        self
    }

    /// As [`Lock::replicas`], but the lock must be fsynced to the AOF of the primary and of this many replicas, which
    /// may be none. Then it survives a crash of the server. Needs `appendonly yes` and a server with WAITAOF: Redis 7.2
    /// and later, and Valkey. Default: as the server's `appendfsync` says.
    pub fn fsynced(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replicas = Some(Replicas {
            needed: replicas,
            fsynced: true,
            timeout,
        });
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

    /// Acquires the lock if it is free and has no waiters.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: it is not. [`Error::Invalid`]: an option is out of range. After a lost connection the
    /// request is retried for the client's [`retry_timeout`](Settings::retry_timeout); the same acquisition never counts
    /// twice.
    pub async fn try_acquire(&self) -> Result<Guard, Error> {
        let outcome = acquire::try_acquire(&self.client, self.request()?).await;
        if self.explains && matches!(outcome, Err(Error::Busy)) {
            return Err(self
                .info()
                .await?
                .map_or(Error::Busy, |info| Error::HeldBy(Box::new(info))));
        }
        outcome
    }

    /// Acquires the lock; waits for it in the server's queue, which is FIFO.
    ///
    /// Cancel-safe: if the future is dropped, the request is cancelled, even if it was granted meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]: it was not granted in time. [`Error::Deadlock`], [`Error::Evictable`],
    /// [`Error::Unreplicated`]: waiting does not help. Whatever may pass, such as an unavailable server or a full queue,
    /// is waited for.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        if self.options.wait.is_zero() {
            return self.try_acquire().await;
        }
        acquire::acquire(&self.client, self.request()?).await
    }

    /// Acquires the lock, runs `work` under it, then releases it. When the lock is lost, the work is cancelled: its future
    /// is dropped at its next `await`.
    ///
    /// # Errors
    ///
    /// [`RunError`] says whether the work was started, cancelled or finished. It converts to [`Error`].
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire().await.map_err(RunError::NotAcquired)?;
        guard.run(work).await
    }

    /// The owner that has held the lock the longest; `None` if it is free.
    pub async fn current_owner(&self) -> Result<Option<Owner>, Error> {
        let command = GetOwner::new(&*self.key).into();
        self.query(&command).await
    }

    /// The holders and waiters; `None` if the lock is free and has no waiters.
    pub async fn info(&self) -> Result<Option<LockInfo>, Error> {
        let command = GetInfo::new(&*self.key).into();
        self.query(&command).await
    }

    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let reply = self.client.link.query(command).await;
        reply.map_err(|error| error.at_server(self.client.address()))
    }

    fn request(&self) -> Result<AcquireRequest, Error> {
        self.options.validate()?;
        let owner = self.owner.clone().unwrap_or_else(Owner::unique);
        validate_owner(&owner)?;
        Ok(AcquireRequest {
            identity: RequestIdentity::new(Arc::clone(&self.key), owner),
            options: self.options,
            replicas: self.replicas,
            min_fence: None,
        })
    }
}

/// Rejects what no server accepts, before anything is sent.
fn validate_owner(owner: &Owner) -> Result<(), Error> {
    match owner.as_bytes().len() {
        1..=512 => Ok(()),
        length => Err(Error::Invalid(format!(
            "the owner must have 1 to 512 bytes, not {length}"
        ))),
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locks").field(self.client.address()).finish()
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lock")
            .field(&String::from_utf8_lossy(&self.key))
            .finish()
    }
}
