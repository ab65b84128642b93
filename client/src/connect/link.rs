use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, RedisResult};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::address::Address;
use super::connection::{Connection, Purpose, Timeouts};
use super::errors::{in_time, map_error, should_reconnect};
use super::pool::BlockingPool;
use crate::error::Error;
use crate::sync::lock;

/// A connection that all requests share, made on demand and replaced when it is lost. Never used for requests that
/// block.
pub(crate) struct Link {
    address: Address,
    timeouts: Timeouts,
    purpose: Purpose,
    notices: Option<RenewalNotices>,
    current: Mutex<Option<Arc<Current>>>,
    /// Locked by the task that connects: the error of the last attempt.
    connecting: tokio::sync::Mutex<Option<RedisError>>,
}

/// Who is notified about the connection for renewals.
pub(crate) struct RenewalNotices {
    /// Notified when the connection is lost, even if nothing is sent.
    pub disconnected: Arc<Notify>,
    /// Gives up connections when there is no room for this one.
    pub pool: Arc<BlockingPool>,
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
        notices: Option<RenewalNotices>,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            timeouts,
            purpose,
            notices,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    /// Sends a request once.
    pub async fn query<T: FromRedisValue>(self: &Arc<Self>, command: &Cmd) -> Result<T, Error> {
        self.route().await?.query(command).await
    }

    pub fn is_cluster(&self) -> bool {
        self.address.is_cluster()
    }

    /// Sends a request once. Without a reply within `limit`, the connection is dropped, which may be sooner than its
    /// own timeouts would.
    pub async fn query_within<T: FromRedisValue>(
        self: &Arc<Self>,
        limit: Duration,
        command: &Cmd,
    ) -> Result<T, Error> {
        let mut taken = None;
        {
            let asking = async { taken.insert(self.route().await?).query(command).await };
            tokio::pin!(asking);
            // In two parts: after a time in which this process did not run, the first timer ends before the reply that has
            // arrived meanwhile is read.
            for part in [limit / 2, limit - limit / 2] {
                if let Ok(reply) = timeout(part, &mut asking).await {
                    return reply;
                }
            }
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
        let disconnected = self
            .notices
            .as_ref()
            .map(|notices| Arc::clone(&notices.disconnected));
        let connecting = self.address.connect(self.timeouts, self.purpose, disconnected);
        let connected = in_time(self.timeouts.connect, connecting).await;
        *failure = connected.as_ref().err().cloned();
        if let (Some(error), Some(notices)) = (&*failure, &self.notices) {
            notices.pool.on_renewal_connect_error(error);
        }
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
