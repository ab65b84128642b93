use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::acquire::acquire;
use super::guard::Guard;
use super::mode::{Exclusive, Mode, Shared};
use super::request::Request;
use super::servers::Servers;
use crate::client::{Client, Settings};
use crate::connect::Address;
use crate::error::Error;
use crate::events::Reporter;
use crate::identity::Limit;
use crate::options::Options;
use crate::renewal::RenewalThread;
use crate::run::RunError;

/// A server that fails is asked once more; after that, the others decide.
const RETRY_TIMEOUT: Duration = Duration::from_millis(10);

/// All locks of several independent servers. Cheap to clone; one per application is enough.
#[derive(Clone)]
pub struct Locks {
    servers: Arc<Servers>,
}

/// One lock, and how to acquire it. Each acquisition has a unique owner.
#[derive(Clone)]
#[must_use = "a lock is not held before it is acquired"]
pub struct Lock<M: Mode = Exclusive> {
    servers: Arc<Servers>,
    key: Arc<[u8]>,
    options: Options,
    mode: PhantomData<M>,
}

impl Locks {
    /// The locks of the servers at these addresses, which must be the same, in the same order, everywhere. Nothing is sent
    /// yet.
    ///
    /// Each server has one vote, so name each once. Only the text of host and port is checked, names are not resolved:
    /// `localhost` and `127.0.0.1` count as two servers, and that server would vote twice.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: an address is invalid or leads to a cluster or to Sentinels, two have the same host and port, or
    /// there is none.
    /// [`Error::Redis`]: the system cannot create a thread.
    pub fn open<A: TryInto<Address>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        Self::with(addresses, Settings::default())
    }

    /// As [`Locks::open`], with other settings than the default ones.
    ///
    /// [`Settings::response_timeout`] is the node timeout: a server that goes silent is taken to be down within this time,
    /// and another one is asked. [`Settings::retry_timeout`] does not apply: the other servers take the place of retries.
    /// [`Settings::max_waiting`] is for each server.
    pub fn with<A: TryInto<Address>>(
        addresses: impl IntoIterator<Item = A>,
        settings: Settings,
    ) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        let node_timeout = settings.timeouts.response;
        let connect_timeout = settings.timeouts.connect.min(node_timeout);
        let settings = settings
            .retry_timeout(RETRY_TIMEOUT)
            .connect_timeout(connect_timeout);
        // One for all of them.
        let renewal_thread = RenewalThread::start()?;
        let reporter = Arc::new(Reporter::new(settings.hook.clone()));
        let mut clients: Vec<Arc<Client>> = Vec::new();
        for address in addresses {
            let address = address.try_into()?;
            if !address.is_one_server() {
                return Err(Error::Invalid(format!(
                    "{address} is no single server: the servers of a quorum are independent, without replicas or slots"
                )));
            }
            if clients
                .iter()
                .any(|client| client.address().is_same_server(&address))
            {
                return Err(Error::Invalid(format!(
                    "{address} is named twice among the servers: each has one vote"
                )));
            }
            let (thread, reporter) = (Arc::clone(&renewal_thread), Arc::clone(&reporter));
            clients.push(Arc::new(Client::new(address, &settings, thread, reporter, true)));
        }
        if clients.is_empty() {
            return Err(Error::Invalid("a majority needs at least one server".into()));
        }
        Ok(Self {
            servers: Servers::new(clients.into(), node_timeout),
        })
    }

    /// The lock of a key.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock {
            servers: Arc::clone(&self.servers),
            key: key.as_ref().into(),
            options: Options::default(),
            mode: PhantomData,
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

    /// Whether locks can be acquired: for readiness probes. See [`Locks::check`](crate::Locks::check).
    ///
    /// # Errors
    ///
    /// Those of [`Lock::try_acquire`] and [`Guard::release`].
    pub async fn check(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        match self.try_acquire(key).await {
            Ok(guard) => guard.release().await,
            Err(Error::Busy) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Resolves when all releases and cancellations that are in progress in the background are done or given up. See
    /// [`Locks::settle`](crate::Locks::settle).
    pub async fn settle(&self) {
        self.servers.renewal_thread().settle().await;
    }

    /// How many events were dropped, because a hook or a subscriber was too slow. See [`Settings::on_event`].
    pub fn dropped_events(&self) -> u64 {
        self.servers.reporter().dropped()
    }

    /// The runtime of the renewal thread.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.servers.renewal_thread().runtime()
    }
}

impl Lock<Exclusive> {
    /// Any number of owners may share the lock, as readers do. Such a lock has no fence.
    pub fn shared(mut self) -> Lock<Shared> {
        self.options.limit = Limit::Shared;
        Lock {
            servers: self.servers,
            key: self.key,
            options: self.options,
            mode: PhantomData,
        }
    }
}

impl<M: Mode> Lock<M> {
    /// How long the lock is held without renewal, 1 ms to `dlock.max-lease-ms` of the servers. Default: 30 s. A lease that
    /// is not longer than two round trips to the servers, 1 % of it and 2 ms expires before it is held.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How long [`Lock::acquire`] waits; [`Duration::MAX`]: without a timeout. Default: 30 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = wait;
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

    /// Acquires the lock if it is free and has no waiters.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: it is not. [`Error::Invalid`]: an option is out of range. [`Error::NoQuorum`]: too few servers
    /// granted it for other reasons; it names them.
    pub async fn try_acquire(&self) -> Result<Guard<M>, Error> {
        self.acquire_or_wait(false).await
    }

    /// Acquires the lock; waits for it in the queues of the servers, which are FIFO.
    ///
    /// Cancel-safe: if the future is dropped, the requests are cancelled on all servers, even if they were granted
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]: it was not granted in time; with [`Error::NoQuorum`] if servers were unavailable.
    /// [`Error::NoQuorum`] itself: too many servers rejected the request, and waiting does not help.
    pub async fn acquire(&self) -> Result<Guard<M>, Error> {
        self.acquire_or_wait(!self.options.wait.is_zero()).await
    }

    /// Acquires the lock, runs `work` under it, then releases it. When the lock is lost, the work is cancelled: its future
    /// is dropped at its next `await`.
    ///
    /// # Errors
    ///
    /// [`RunError`] says whether the work was started, cancelled or finished. It converts to [`Error`].
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Guard<M>) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire().await.map_err(RunError::NotAcquired)?;
        guard.run(work).await
    }

    async fn acquire_or_wait(&self, waits: bool) -> Result<Guard<M>, Error> {
        self.options.validate()?;
        let request = Request {
            key: Arc::clone(&self.key),
            options: self.options,
            waits,
        };
        acquire(&self.servers, request).await
    }

    /// The runtime of the renewal thread.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &tokio::runtime::Handle {
        self.servers.renewal_thread().runtime()
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.servers.clients.iter().map(|client| client.address());
        f.debug_list().entries(addresses).finish()
    }
}

impl<M: Mode> fmt::Debug for Lock<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lock")
            .field(&String::from_utf8_lossy(&self.key))
            .finish()
    }
}
