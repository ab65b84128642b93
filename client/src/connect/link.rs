use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, RedisResult, ServerErrorKind};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::address::Address;
use super::connection::{Connection, Purpose, Timeouts};
use crate::error::Error;
use crate::sync::lock;

/// A connection that all requests share, made on demand and replaced when it is lost. Never used for requests that
/// block.
pub(crate) struct Link {
    address: Address,
    timeouts: Timeouts,
    purpose: Purpose,
    /// Notified when the connection is lost, also if nothing is sent.
    disconnected: Option<Arc<Notify>>,
    current: Mutex<Option<Arc<Current>>>,
    /// Locked by the task that connects: the error of the last attempt.
    connecting: tokio::sync::Mutex<Option<RedisError>>,
}

struct Current {
    connection: Connection,
}

/// The connection that a request took. Later requests on the same route do not overtake it.
#[derive(Clone)]
pub(crate) struct Route {
    link: Arc<Link>,
    current: Arc<Current>,
}

impl Link {
    pub fn new(
        address: Address,
        timeouts: Timeouts,
        purpose: Purpose,
        disconnected: Option<Arc<Notify>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            timeouts,
            purpose,
            disconnected,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    /// Sends a request once.
    pub async fn query<T: FromRedisValue>(self: &Arc<Self>, command: &Cmd) -> Result<T, Error> {
        self.route().await?.query(command).await
    }

    /// Sends a request once. Without a reply within `limit`, the connection is dropped, which may be sooner than its
    /// own timeouts would.
    pub async fn query_within<T: FromRedisValue>(
        self: &Arc<Self>,
        limit: Duration,
        command: &Cmd,
    ) -> Result<T, Error> {
        let mut taken = None;
        let asking = async { taken.insert(self.route().await?).query(command).await };
        if let Ok(reply) = timeout(limit, asking).await {
            return reply;
        }
        if let Some(route) = taken {
            self.discard(&route.current);
        }
        Err(Error::no_response())
    }

    /// The current connection, or a new one.
    pub async fn route(self: &Arc<Self>) -> Result<Route, Error> {
        let current = match self.current() {
            Some(current) => current,
            // In a task of its own, which goes on when the caller is cancelled.
            None => match tokio::spawn(Arc::clone(self).connect()).await {
                Ok(connected) => connected?,
                Err(_) => return Err(RedisError::from(io::Error::from(io::ErrorKind::NotConnected)).into()),
            },
        };
        Ok(Route {
            link: Arc::clone(self),
            current,
        })
    }

    fn current(&self) -> Option<Arc<Current>> {
        lock(&self.current).clone()
    }

    /// One task connects; those that arrive meanwhile share the outcome.
    async fn connect(self: Arc<Self>) -> RedisResult<Arc<Current>> {
        let (mut failure, shares) = match self.connecting.try_lock() {
            Ok(failure) => (failure, false),
            Err(_) => (self.connecting.lock().await, true),
        };
        if let Some(current) = self.current() {
            return Ok(current);
        }
        if let (true, Some(error)) = (shares, &*failure) {
            return Err(error.clone());
        }
        let disconnected = self.disconnected.clone();
        let connecting = self.address.connect(self.timeouts, self.purpose, disconnected);
        let connected = in_time(self.timeouts.connect, connecting).await;
        *failure = connected.as_ref().err().cloned();
        let current = Arc::new(Current {
            connection: connected?,
        });
        *lock(&self.current) = Some(Arc::clone(&current));
        Ok(current)
    }

    /// The next request takes another connection.
    fn discard(&self, lost: &Arc<Current>) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, lost)) {
            *current = None;
        }
    }
}

impl Route {
    pub fn may_redirect(&self) -> bool {
        self.current.connection.may_redirect()
    }

    /// Sends a request once.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let mut connection = self.current.connection.clone();
        let query = command.query_async(&mut connection);
        let reply: RedisResult<T> = if self.may_redirect() {
            // redis-rs tries several nodes, each with timeouts of its own.
            in_time(self.link.timeouts.request(), query).await
        } else {
            query.await
        };
        reply.map_err(|error| {
            if should_reconnect(&error) {
                self.link.discard(&self.current);
            }
            map_error(error, self.may_redirect())
        })
    }
}

/// Limits the time that redis-rs takes for all it tries.
pub(super) async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    match timeout(limit, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

/// Only the address of a cluster leads to the node that MOVED names.
pub(super) fn map_error(error: RedisError, is_cluster: bool) -> Error {
    if !is_cluster && error.code() == Some("MOVED") {
        let text = "the server is a cluster node, and another node serves this lock: use the address of the \
                    cluster, redis-cluster://host:port";
        return Error::Invalid(text.into());
    }
    error.into()
}

/// Whether to replace the connection that gave this error: it is lost, unresponsive, or leads to a server that is no
/// primary any more.
pub(super) fn should_reconnect(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_io_error()
        || matches!(
            error.kind(),
            redis::ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}
