use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "blocking")]
use tokio::runtime::Handle;

use super::acquire::{self, AcquireRequest};
use super::guard::Guard;
use crate::client::{Client, Settings};
use crate::connect::Address;
use crate::error::Error;
use crate::identity::Limit;
use crate::options::Options;
use crate::renewal::RenewalThread;
use crate::run::RunError;

/// The default timeout of a server: this part of the lease, but not less than the minimum.
const NODE_TIMEOUT_PART: u32 = 20;
const MIN_NODE_TIMEOUT: Duration = Duration::from_millis(50);
/// A lost connection is replaced once; after that, the other servers decide.
const NODE_RETRY_TIMEOUT: Duration = Duration::from_millis(10);

/// All locks of several independent servers. Cheap to clone; one per application is enough.
#[derive(Clone)]
pub struct Locks {
    nodes: Arc<[Arc<Client>]>,
}

/// One lock, and how to acquire it. Each acquisition has a unique owner.
#[derive(Clone)]
pub struct Lock {
    nodes: Arc<[Arc<Client>]>,
    key: Arc<[u8]>,
    options: Options,
    node_timeout: Option<Duration>,
}

impl Locks {
    /// The locks of the servers at these addresses, which must be the same everywhere. Nothing is sent yet.
    ///
    /// Each server has one vote, so name each once. Only the text of host and port is checked, names are not resolved:
    /// `localhost` and `127.0.0.1` count as two servers, and that server would vote twice.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: an address is invalid, two have the same host and port, or there is none.
    /// [`Error::Redis`]: the system cannot create a thread.
    pub fn open<A: TryInto<Address>>(addresses: impl IntoIterator<Item = A>) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        Self::with(addresses, Settings::default())
    }

    /// As [`Locks::open`], with other settings than the default ones. [`Settings::retry_timeout`] does not apply:
    /// each server is asked once per attempt, and [`Lock::wait`] limits the attempts.
    pub fn with<A: TryInto<Address>>(
        addresses: impl IntoIterator<Item = A>,
        settings: Settings,
    ) -> Result<Self, Error>
    where
        Error: From<A::Error>,
    {
        let settings = settings.retry_timeout(NODE_RETRY_TIMEOUT);
        // One thread for all of them.
        let renewal_thread = RenewalThread::start()?;
        let mut nodes: Vec<Arc<Client>> = Vec::new();
        for address in addresses {
            let address = address.try_into()?;
            if nodes.iter().any(|node| node.address().is_same_server(&address)) {
                return Err(Error::Invalid(format!(
                    "{address} is named twice among the servers: each has one vote"
                )));
            }
            nodes.push(Arc::new(Client::new(
                address,
                settings.clone(),
                Arc::clone(&renewal_thread),
                false,
            )));
        }
        if nodes.is_empty() {
            return Err(Error::Invalid("a majority needs at least one server".into()));
        }
        Ok(Self { nodes: nodes.into() })
    }

    /// The lock of a key.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock {
            nodes: Arc::clone(&self.nodes),
            key: key.as_ref().into(),
            options: Options::default(),
            node_timeout: None,
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
    /// How long the lock is held without renewal, 1 ms to `dlock.max-lease-ms` of the servers. Default:
    /// 30 s. A lease that is not much longer than the servers take to respond expires before it is held.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How long [`Lock::acquire`] tries; [`Duration::MAX`]: without a timeout. Default: 30 s.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = wait;
        self
    }

    /// Any number of owners may lease the lock, as readers do.
    pub fn shared(mut self) -> Self {
        self.options.limit = Limit::Shared;
        self
    }

    /// Whether the leases are renewed, after about a third of them, as long as the guard lives. Default: yes.
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

    /// How long to wait for each server, including the time to connect. Default: a 20th of the lease, but at least
    /// 50 ms.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// Acquires the lock if a majority of the servers grants it at once.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`]: others hold it on too many servers. [`Error::NoQuorum`]: too few servers agreed, also for other
    /// reasons; it names the servers. [`Error::Lost`]: it took longer than the lease.
    pub async fn try_acquire(&self) -> Result<Guard, Error> {
        acquire::try_acquire(&self.nodes, &self.request()).await
    }

    /// Acquires the lock; retries after random pauses until a majority grants it.
    ///
    /// Cancel-safe: if the future is dropped, the requests are cancelled, even if they were granted meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]: it was not granted in time; with the last [`Error::NoQuorum`] if servers were unavailable.
    /// [`Error::NoQuorum`] itself: too many servers rejected the request, and a retry would not help.
    pub async fn acquire(&self) -> Result<Guard, Error> {
        if self.options.wait.is_zero() {
            return self.try_acquire().await;
        }
        acquire::acquire(&self.nodes, &self.request()).await
    }

    /// Runs `work` under the lock, then releases it. When the lock is lost, the work is cancelled: its future is dropped
    /// at its next `await`.
    ///
    /// # Errors
    ///
    /// [`RunError`] says whether the work was started, cancelled or finished. It converts to [`Error`].
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
        let guard = self.acquire().await.map_err(RunError::NotAcquired)?;
        let done = tokio::select! {
            biased;
            reason = guard.lost() => return Err(RunError::Cancelled(reason)),
            done = work(&guard) => done,
        };
        guard.finish(done).await
    }

    /// The runtime of the renewal thread.
    #[cfg(feature = "blocking")]
    pub(crate) fn runtime(&self) -> &Handle {
        self.nodes[0].renewal_thread().runtime()
    }

    fn request(&self) -> AcquireRequest {
        let default = || (self.options.lease / NODE_TIMEOUT_PART).max(MIN_NODE_TIMEOUT);
        AcquireRequest {
            key: Arc::clone(&self.key),
            options: self.options,
            node_timeout: self.node_timeout.unwrap_or_else(default),
        }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.nodes.iter().map(|node| node.address());
        f.debug_list().entries(addresses).finish()
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lock")
            .field(&String::from_utf8_lossy(&self.key))
            .finish()
    }
}
