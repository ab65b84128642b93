use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionAddr, FromRedisValue, RedisError};
use tokio::runtime::Handle;
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};
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
    keys: Mutex<HashMap<Arc<[u8]>, Key>>,
    idle: Mutex<Vec<PooledConnection>>,
    /// Runs the task that closes idle connections.
    runtime: Handle,
    has_cleaner: AtomicBool,
    /// Notified once for each connection to close.
    close_one: Notify,
    paused_until: Mutex<Instant>,
}

/// A key for which requests wait, or were refused.
struct Key {
    turns: Arc<Semaphore>,
    busy_until: Instant,
}

impl Key {
    /// Whether requests for this key wait in this process, or one was refused a moment ago.
    fn is_contended(&self) -> bool {
        Arc::strong_count(&self.turns) > 1 || self.busy_until > Instant::now()
    }
}

/// A connection for one blocked request. Dropped, it is closed, and the server removes the waiter.
#[derive(Clone)]
pub(crate) struct PooledConnection {
    connection: MultiplexedConnection,
    node: ConnectionAddr,
    /// `None`: it is new.
    idle_since: Option<Instant>,
    in_cluster: bool,
}

/// The right to wait for a key, or to use a connection for that. No error: the semaphores are never closed.
pub(crate) type Permit = Result<OwnedSemaphorePermit, AcquireError>;

impl BlockingPool {
    pub fn new(address: Address, timeouts: Timeouts, limits: WaitLimits, runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            address,
            timeouts,
            limits,
            total: Arc::new(Semaphore::new(limits.total)),
            keys: Mutex::default(),
            idle: Mutex::default(),
            runtime,
            has_cleaner: AtomicBool::new(false),
            close_one: Notify::new(),
            paused_until: Mutex::new(Instant::now()),
        })
    }

    /// Whether a request for this key should wait at once, instead of being refused first.
    pub fn is_contended(&self, key: &[u8]) -> bool {
        lock(&self.keys).get(key).is_some_and(Key::is_contended)
    }

    /// A request for this key was refused.
    pub fn on_busy(&self, key: &Arc<[u8]>) {
        self.with(key, |key| key.busy_until = Instant::now() + BUSY_FOR);
    }

    fn with<T>(&self, key: &Arc<[u8]>, access: impl FnOnce(&mut Key) -> T) -> T {
        let mut keys = lock(&self.keys);
        // Before the map grows, it is cleaned up.
        if keys.len() == keys.capacity() {
            keys.retain(|_, key| key.is_contended());
            let contended = keys.len();
            keys.reserve(contended + 1);
        }
        access(keys.entry(Arc::clone(key)).or_insert_with(|| Key {
            turns: Arc::new(Semaphore::new(self.limits.per_key)),
            busy_until: Instant::now(),
        }))
    }

    /// Waits until fewer requests than the limit are waiting for this key, in order of arrival.
    pub async fn turn(&self, key: &Arc<[u8]>) -> Permit {
        let turns = self.with(key, |key| Arc::clone(&key.turns));
        turns.acquire_owned().await
    }

    /// Waits until fewer connections than the limit are in use, in order of arrival.
    pub fn permit(&self) -> impl Future<Output = Permit> + Send + use<> {
        Arc::clone(&self.total).acquire_owned()
    }

    /// A connection to the server that serves the key, as far as known.
    pub async fn checkout(&self, key: &[u8]) -> Result<PooledConnection, Error> {
        let server = self.address.server();
        let limit = self.timeouts.connect;
        let client = in_time(limit, server.client_for(key, Purpose::Requests)).await?;
        let node = client.get_connection_info().addr().clone();
        if let Some(connection) = self.take_idle(&node) {
            return Ok(connection);
        }
        self.leave_room_for_renewals().await;
        let config = self.timeouts.config().set_response_timeout(None);
        let connecting = Box::pin(client.get_multiplexed_async_connection_with_config(&config));
        let connected = in_time(limit, connecting).await;
        Ok(PooledConnection {
            connection: connected.inspect_err(|_| server.forget(&node))?,
            node,
            idle_since: None,
            in_cluster: server.is_cluster(),
        })
    }

    fn take_idle(&self, node: &ConnectionAddr) -> Option<PooledConnection> {
        let mut idle = lock(&self.idle);
        // The one that was used last is the least likely to be dead.
        let index = idle.iter().rposition(|idle| idle.node == *node);
        if index.is_none() {
            // Those to other nodes count towards the limit, too.
            idle.truncate(self.total.available_permits());
        }
        index.map(|index| idle.remove(index))
    }

    /// The request on a connection was answered, with this error if any. Keeps the connection for the next request
    /// unless it is lost.
    pub fn checkin(self: &Arc<Self>, mut connection: PooledConnection, error: Option<&Error>) {
        let error = error.and_then(Error::as_redis);
        let is_lost = error.is_some_and(should_reconnect);
        if let Some(error) = error {
            // A primary that is demoted unblocks its waiters; the connection stays open.
            if is_lost || matches!(error.code(), Some("UNBLOCKED" | "MOVED")) {
                self.address.server().forget(&connection.node);
            }
        }
        let mut idle = lock(&self.idle);
        if !is_lost {
            connection.idle_since = Some(Instant::now());
            if idle.len() == MAX_IDLE {
                idle.remove(0);
            }
            idle.push(connection);
            if !self.has_cleaner.swap(true, Ordering::AcqRel) {
                self.runtime.spawn(close_idle(Arc::downgrade(self)));
            }
        } else if connection.idle_since.is_some() {
            // It had been idle: the others may be dead, too.
            idle.retain(|other| other.node != connection.node);
        }
    }

    /// A connection for renewals could not be made: if there was no room for it, gives up the idle connections, and the
    /// one of the request that has waited the shortest.
    pub fn on_renewal_connect_error(&self, error: &RedisError) {
        if is_exhaustion(error) {
            *lock(&self.paused_until) = Instant::now() + PAUSE;
            lock(&self.idle).clear();
            self.close_one.notify_last();
        }
    }

    async fn leave_room_for_renewals(&self) {
        loop {
            let until = *lock(&self.paused_until);
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
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
        idle.retain(|idle| idle.idle_since.is_none_or(|since| since.elapsed() < IDLE_TIMEOUT));
        if idle.is_empty() {
            pool.has_cleaner.store(false, Ordering::Release);
            return;
        }
    }
}

/// Whether the server, or this process, may have no more connections.
fn is_exhaustion(error: &RedisError) -> bool {
    let text = error.to_string();
    // A server that has no more clients closes the connection, maybe before it says why. The others are EMFILE and
    // ENFILE.
    let texts = ["max number of clients", "(os error 24)", "(os error 23)"];
    error.is_connection_dropped() || texts.iter().any(|exhausted| text.contains(exhausted))
}

impl PooledConnection {
    /// Sends a request and waits for its reply without a timeout.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let reply = command.query_async(&mut self.connection.clone()).await;
        reply.map_err(|error| map_error(error, self.in_cluster))
    }
}
