mod all;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "blocking")]
use tokio::runtime::Handle;

use crate::acquire::{self, AcquireRequest};
use crate::client::{Client, Settings};
use crate::command::{GetInfo, GetOwner, LockInfo};
use crate::connect::Address;
use crate::error::Error;
use crate::guard::Guard;
use crate::identity::{Limit, RequestIdentity};
use crate::options::Options;
use crate::owner::Owner;
use crate::renewal::RenewalThread;
use crate::replicas::Replicas;

pub use all::{Guards, acquire_all};

/// All locks of a server. Cheap to clone; one for the whole application is enough.
///
/// Its connections live on the runtime in which they were first needed, and are shared. With several runtimes, each
/// of which runs on one thread, give each a `Locks` of its own: else the tasks of one can wait in vain while the other,
/// which has the connection, does not run. Renewals are not concerned, they have a thread of their own.
///
/// Open it after a fork, as a daemon and a server with worker processes do: the child has no such thread. There
/// nothing is renewed, no loss is told, and calls of `blocking_*` never return.
#[derive(Clone)]
pub struct Locks {
    client: Arc<Client>,
}

/// One lock, and how it is to be acquired.
///
/// Without an explicit owner each acquisition has a new one. For re-entry and for the detection of
/// deadlocks, name [an owner](Lock::owner), and let one task at a time use it.
#[derive(Clone)]
pub struct Lock {
    client: Arc<Client>,
    key: Arc<[u8]>,
    owner: Option<Owner>,
    options: Options,
    replicas: Option<Replicas>,
}

impl Locks {
    /// The locks of the server at an address, a text or a [`redis::Client`]. Nothing is sent yet: a server
    /// that is not there is noticed by the first request.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: the address cannot be used. [`Error::Redis`]: the system gives no thread.
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
        let client = Client::new(address.try_into()?, settings, RenewalThread::start()?);
        Ok(Self {
            client: Arc::new(client),
        })
    }

    /// One of the locks.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock {
            client: Arc::clone(&self.client),
            key: key.as_ref().into(),
            owner: None,
            options: Options::default(),
            replicas: None,
        }
    }

    /// Acquires a lock, with the default options. See [`Lock::acquire`].
    pub async fn acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).acquire().await
    }

    /// Acquires a lock if it is free, with the default options. See [`Lock::try_acquire`].
    pub async fn try_acquire(&self, key: impl AsRef<[u8]>) -> Result<Guard, Error> {
        self.lock(key).try_acquire().await
    }
}

impl Lock {
    /// For how long the lock is held without renewal, 1 ms to `dlock.max-lease-ms` of the server. Default:
    /// 30 s. A lease that is not longer than a round trip to the server and 3 ms is over before it is held: then
    /// [`Lock::acquire`] asks again and again, until [`Error::Timeout`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// For how long [`Lock::acquire`] waits; [`Duration::MAX`] is without limit. Default: 30 s.
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

    /// Whether the lease is renewed, at a third of it, as long as the guard lives. Default: yes.
    pub fn auto_renew(mut self, renew: bool) -> Self {
        self.options.renews = renew;
        self
    }

    /// The guard is lost after this time, renewed or not: a stuck holder does not keep the lock for ever.
    /// Default: no limit.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.options.max_hold = Some(time);
        self
    }

    /// The lock counts as acquired when so many replicas have it, and is given back when they have not within
    /// `timeout` after the grant: then a failover to one of them keeps it. It takes a connection of its own, and a
    /// round trip to the replicas, during which the lease runs. Renewals and releases are not waited for. Default: none.
    pub fn replicas(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replicas = Some(Replicas {
            needed: replicas,
            fsynced: false,
            timeout,
        });
        self
    }

    /// As [`Lock::replicas`], but the lock must be in the log on disk: of the server itself, and of so many replicas,
    /// which may be none. Then a crash of the server keeps it. Needs `appendonly yes`, and a server that has WAITAOF:
    /// Redis 7.2 and later, and Valkey. Default: as the server's `appendfsync` says.
    pub fn fsynced(mut self, replicas: u32, timeout: Duration) -> Self {
        self.replicas = Some(Replicas {
            needed: replicas,
            fsynced: true,
            timeout,
        });
        self
    }

    /// Who asks. Whoever has the same owner shares its locks: a lock that it holds is granted again at once, and
    /// counted. One task at a time should use an owner: two that use the same one, two processes for instance, hold
    /// the lock together, under the same [fence](Guard::fence), so that no check of fences tells them apart. A name
    /// for people is best followed by something unique: `format!("{name}:{}", Owner::unique())`. Default: a new one
    /// for each acquisition.
    pub fn owner(mut self, owner: impl Into<Owner>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Acquires the lock if it is free and nobody waits for it.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: it is not. A lost connection is a reason to ask again, for as long as the client has
    /// [patience](Settings::patience); the same acquisition never counts twice.
    pub async fn try_acquire(&self) -> Result<Guard, Error> {
        acquire::try_acquire(&self.client, self.request()).await
    }

    /// Acquires the lock; waits for it in the server's queue, which is served in order of arrival.
    ///
    /// Cancel-safe: a future that is dropped is taken back, whether it was granted meanwhile or not.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]: it was not granted in time. [`Error::Deadlock`], [`Error::QueueFull`], [`Error::Evictable`],
    /// [`Error::Unreplicated`]: there is no use in waiting. What may pass, a server out of reach for instance, is
    /// waited for.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        if self.options.wait.is_zero() {
            return self.try_acquire().await;
        }
        acquire::acquire(&self.client, self.request()).await
    }

    /// Runs `work` under the lock, and releases it. When the lock is lost, the work is cancelled: its future
    /// is dropped at its next `await`.
    ///
    /// # Errors
    ///
    /// Those of [`Lock::acquire`]; [`Error::Lost`]: the lock was lost before the work was done.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.acquire().await?;
        let done = tokio::select! {
            biased;
            reason = guard.lost() => return Err(Error::Lost(reason)),
            done = work(&guard) => done,
        };
        guard.finish(done).await
    }

    /// The owner that has held the lock the longest; `None`: it is free.
    pub async fn current_owner(&self) -> Result<Option<Owner>, Error> {
        self.client.link().query(&GetOwner::new(&*self.key).into()).await
    }

    /// All about the lock; `None`: it is free, and nobody waits.
    pub async fn info(&self) -> Result<Option<LockInfo>, Error> {
        self.client.link().query(&GetInfo::new(&*self.key).into()).await
    }

    /// The runtime of the thread in the background.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &Handle {
        self.client.renewal_thread().runtime()
    }

    fn request(&self) -> AcquireRequest {
        let owner = self.owner.clone().unwrap_or_else(Owner::unique);
        AcquireRequest {
            identity: RequestIdentity::new(Arc::clone(&self.key), owner),
            options: self.options,
            replicas: self.replicas,
        }
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
