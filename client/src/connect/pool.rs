use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionAddr, FromRedisValue, RedisError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};

use super::address::Address;
use super::connection::{Purpose, Timeouts};
use super::errors::{in_time, map_error, should_reconnect};
use crate::error::Error;
use crate::sync::lock;

/// This many connections are kept for later requests.
const MAX_IDLE: usize = 16;
/// An idle connection is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long no connection is opened after a renewal found no room for one.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a key counts as contended after a request for it was refused.
const BUSY_FOR: Duration = Duration::from_secs(1);
/// Semaphores of keys are cleaned up from this number on.
const MIN_CLEANUP: usize = 64;

/// How many connections blocked requests may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitLimits {
    pub total: usize,
    pub per_key: usize,
}

/// Connections for blocked requests, one request at a time on each.
///
/// Waiting requests beyond the limits are queued in this process, in order of arrival. If the renewal thread finds no
/// room for its connection, because the server or the system allows no more, the pool closes some of its own.
pub(crate) struct BlockingPool {
    address: Address,
    timeouts: Timeouts,
    limits: WaitLimits,
    total: Arc<Semaphore>,
    keys: Mutex<Keys>,
    has_busy_keys: AtomicBool,
    /// How many requests wait for their turn.
    queued: AtomicUsize,
    idle: Mutex<Vec<Idle>>,
    /// Runs the task that closes idle connections.
    runtime: Handle,
    has_cleaner: AtomicBool,
    /// Notified once for each connection to close.
    close_one: Notify,
    paused_until: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Keys {
    turns: HashMap<Arc<[u8]>, Weak<Semaphore>>,
    /// When a request for a key was last refused, because others held the lock.
    busy_since: HashMap<Arc<[u8]>, Instant>,
    cleanup_at: usize,
}

struct Idle {
    connection: PooledConnection,
    since: Instant,
}

/// A connection for one blocked request. Dropped, it is closed, and the server removes the waiter.
#[derive(Clone)]
pub(crate) struct PooledConnection {
    connection: MultiplexedConnection,
    node: ConnectionAddr,
    is_new: bool,
    in_cluster: bool,
}

/// A waiting request's turn among those of the same key.
pub(crate) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

/// The right to use a connection for a waiting request.
pub(crate) struct Permit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl BlockingPool {
    pub fn new(address: Address, timeouts: Timeouts, limits: WaitLimits, runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            address,
            timeouts,
            limits,
            total: Arc::new(Semaphore::new(limits.total)),
            keys: Mutex::default(),
            has_busy_keys: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            idle: Mutex::default(),
            runtime,
            has_cleaner: AtomicBool::new(false),
            close_one: Notify::new(),
            paused_until: Mutex::new(None),
        })
    }

    /// Whether other requests for this key wait for their turn.
    pub fn has_queue(&self, key: &[u8]) -> bool {
        if self.queued.load(Ordering::Acquire) == 0 {
            return false;
        }
        let turns = lock(&self.keys).turns.get(key).and_then(Weak::upgrade);
        turns.is_some_and(|turns| turns.available_permits() == 0)
    }

    /// Whether a request for this key should wait at once, instead of being refused first: others wait for it here, or it
    /// was refused a moment ago.
    pub fn is_contended(&self, key: &[u8]) -> bool {
        let is_busy = |at: &Instant| at.elapsed() < BUSY_FOR;
        self.has_busy_keys.load(Ordering::Acquire)
            && lock(&self.keys).busy_since.get(key).is_some_and(is_busy)
            || self.has_queue(key)
    }

    /// A request for this key was refused.
    pub fn on_busy(&self, key: &Arc<[u8]>) {
        let mut keys = lock(&self.keys);
        if keys.busy_since.len() >= MIN_CLEANUP && !keys.busy_since.contains_key(key) {
            keys.busy_since.retain(|_, at| at.elapsed() < BUSY_FOR);
        }
        keys.busy_since.insert(Arc::clone(key), Instant::now());
        self.has_busy_keys.store(true, Ordering::Release);
    }

    /// Waits until fewer requests than the limit are waiting for this key, in order of arrival.
    pub async fn turn(&self, key: &Arc<[u8]>) -> Turn {
        let _queued = Queued::new(&self.queued);
        let turns = self.turns(key);
        Turn {
            // The semaphore is never closed.
            _permit: turns.acquire_owned().await.ok(),
        }
    }

    fn turns(&self, key: &Arc<[u8]>) -> Arc<Semaphore> {
        let mut keys = lock(&self.keys);
        if let Some(turns) = keys.turns.get(key).and_then(Weak::upgrade) {
            return turns;
        }
        if keys.turns.len() >= keys.cleanup_at.max(MIN_CLEANUP) {
            keys.turns.retain(|_, turns| turns.strong_count() > 0);
            keys.cleanup_at = 2 * keys.turns.len();
        }
        let turns = Arc::new(Semaphore::new(self.limits.per_key));
        keys.turns.insert(Arc::clone(key), Arc::downgrade(&turns));
        turns
    }

    /// Waits until fewer connections than the limit are in use, in order of arrival.
    pub fn permit(&self) -> impl Future<Output = Permit> + Send + use<> {
        let permit = Arc::clone(&self.total).acquire_owned();
        async move {
            Permit {
                // The semaphore is never closed.
                _permit: permit.await.ok(),
            }
        }
    }

    /// A connection to the server that serves the key, as far as known.
    pub async fn checkout(&self, key: &[u8]) -> Result<PooledConnection, Error> {
        let client = in_time(
            self.timeouts.connect,
            self.address.client_for(key, Purpose::Requests),
        )
        .await?;
        let node = client.get_connection_info().addr().clone();
        if let Some(connection) = self.take_idle(&node) {
            return Ok(connection);
        }
        self.leave_room_for_renewals().await;
        let connecting = Address::connect_blocking(client, self.timeouts);
        let connection = in_time(self.timeouts.connect, connecting).await;
        let connection = connection.inspect_err(|_| self.address.forget(&node))?;
        Ok(PooledConnection {
            connection,
            node,
            is_new: true,
            in_cluster: self.address.is_cluster(),
        })
    }

    fn take_idle(&self, node: &ConnectionAddr) -> Option<PooledConnection> {
        let mut idle = lock(&self.idle);
        // The one that was used last is the least likely to be dead.
        let index = idle.iter().rposition(|idle| idle.connection.node == *node);
        if let Some(index) = index {
            return Some(idle.remove(index).connection);
        }
        // Those to other nodes count towards the limit, too.
        idle.truncate(self.total.available_permits());
        None
    }

    /// The request on a connection was answered, with this error if any. Keeps the connection for the next request
    /// unless it is lost.
    pub fn checkin(self: &Arc<Self>, mut connection: PooledConnection, error: Option<&Error>) {
        let error = error.and_then(Error::as_redis);
        let is_lost = error.is_some_and(should_reconnect);
        // A primary that is demoted unblocks its waiters; the connection stays open.
        if is_lost || error.is_some_and(|error| error.code() == Some("UNBLOCKED")) {
            self.address.forget(&connection.node);
        }
        if let Some(error) = error {
            self.address.on_redirect(error, &connection.node);
        }
        let mut idle = lock(&self.idle);
        if !is_lost {
            connection.is_new = false;
            if idle.len() == MAX_IDLE {
                idle.remove(0);
            }
            let since = Instant::now();
            idle.push(Idle { connection, since });
            if !self.has_cleaner.swap(true, Ordering::AcqRel) {
                self.runtime.spawn(close_idle(Arc::downgrade(self)));
            }
        } else if !connection.is_new {
            // It had been idle: the others may be dead, too.
            idle.retain(|other| other.connection.node != connection.node);
        }
    }

    /// A connection for renewals could not be made: if there was no room for it, gives up the idle connections, and the
    /// one of the request that has waited the shortest.
    pub fn on_renewal_connect_error(&self, error: &RedisError) {
        if !is_exhaustion(error) {
            return;
        }
        *lock(&self.paused_until) = Some(Instant::now() + PAUSE);
        lock(&self.idle).clear();
        self.close_one.notify_last();
    }

    async fn leave_room_for_renewals(&self) {
        loop {
            let until = *lock(&self.paused_until);
            match until.filter(|until| *until > Instant::now()) {
                Some(until) => sleep_until(until).await,
                None => return,
            }
        }
    }

    /// Sends a blocking request. Its connection may have to be closed meanwhile: then the reply is lost.
    pub async fn query_blocking<T: FromRedisValue>(
        &self,
        connection: &PooledConnection,
        command: &Cmd,
    ) -> Result<T, Error> {
        tokio::select! {
            reply = connection.query(command) => reply,
            () = self.close_one.notified() => {
                Err(RedisError::from(io::Error::from(io::ErrorKind::ConnectionAborted)).into())
            }
        }
    }
}

/// Closes connections that have been idle for a while; ends when there are none left.
async fn close_idle(pool: Weak<BlockingPool>) {
    loop {
        sleep(IDLE_TIMEOUT / 2).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let mut idle = lock(&pool.idle);
        idle.retain(|idle| idle.since.elapsed() < IDLE_TIMEOUT);
        if idle.is_empty() {
            pool.has_cleaner.store(false, Ordering::Release);
            return;
        }
    }
}

/// Whether the server, or this process, may have no more connections.
fn is_exhaustion(error: &RedisError) -> bool {
    let text = error.to_string();
    // A server that has no more clients closes the connection, maybe before it says why.
    error.is_connection_dropped()
        || text.contains("max number of clients")
        // EMFILE and ENFILE.
        || text.contains("(os error 24)")
        || text.contains("(os error 23)")
}

impl PooledConnection {
    /// Sends a request and waits for its reply without a timeout.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let answer = command.query_async(&mut self.connection.clone()).await;
        answer.map_err(|error| map_error(error, self.in_cluster))
    }
}

/// Counts a request while it is queued.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
