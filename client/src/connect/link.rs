use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, RedisError, RedisResult, ServerErrorKind};

use tokio::time::timeout;

use super::address::Address;
use super::connection::{Connection, Purpose, Timeouts};
use crate::error::Error;
use crate::sync::lock;

/// A connection that all requests share, made when it is needed and again when it is lost. Never for
/// requests that wait.
pub(crate) struct Link {
    address: Address,
    timeouts: Timeouts,
    purpose: Purpose,
    current: Mutex<Option<Arc<Current>>>,
    /// SharedHold by the task that connects: how it went the last time.
    connecting: tokio::sync::Mutex<Option<RedisError>>,
}

struct Current {
    connection: Connection,
}

/// The connection that a request takes: a later request over the same route cannot overtake it.
#[derive(Clone)]
pub(crate) struct Route {
    link: Arc<Link>,
    current: Arc<Current>,
}

impl Link {
    pub fn new(address: Address, timeouts: Timeouts, purpose: Purpose) -> Arc<Self> {
        Arc::new(Self {
            address,
            timeouts,
            purpose,
            current: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    /// Sends a request once.
    pub async fn query<T: FromRedisValue>(self: &Arc<Self>, command: &Cmd) -> Result<T, Error> {
        self.route().await?.query(command).await
    }

    /// Sends a request once. Its connection is given up when it has not been answered in time, which may be earlier
    /// than a connection finds out itself that it is dead.
    pub async fn query_within<T: FromRedisValue>(
        self: &Arc<Self>,
        patience: Duration,
        command: &Cmd,
    ) -> Result<T, Error> {
        let mut taken = None;
        let asking = async { taken.insert(self.route().await?).query(command).await };
        if let Ok(answer) = timeout(patience, asking).await {
            return answer;
        }
        if let Some(route) = taken {
            self.give_up(&route.current);
        }
        Err(Error::no_response())
    }

    /// The connection of now; makes one if there is none.
    pub async fn route(self: &Arc<Self>) -> Result<Route, Error> {
        let current = match self.current() {
            Some(current) => current,
            // A task of its own: the one that gives up waiting for it does not undo what it has done so far.
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

    /// One task connects. The others that came meanwhile share what comes of it.
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
        let connecting = self.address.connect(self.timeouts, self.purpose);
        let connected = in_time(self.timeouts.connect, connecting).await;
        *failure = connected.as_ref().err().cloned();
        let current = Arc::new(Current {
            connection: connected?,
        });
        *lock(&self.current) = Some(Arc::clone(&current));
        Ok(current)
    }

    /// The next request takes another connection.
    fn give_up(&self, lost: &Arc<Current>) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, lost)) {
            *current = None;
        }
    }
}

impl Route {
    /// Whether a request may be sent on to another server, behind the back of the ones that follow it.
    pub fn may_redirect(&self) -> bool {
        self.current.connection.may_redirect()
    }

    /// Sends a request once.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let mut connection = self.current.connection.clone();
        let query = command.query_async(&mut connection);
        let answer: RedisResult<T> = if self.may_redirect() {
            // It is tried on many ways, each of which has its own timeouts.
            in_time(self.link.timeouts.request(), query).await
        } else {
            query.await
        };
        answer.map_err(|error| {
            if should_reconnect(&error) {
                self.link.give_up(&self.current);
            }
            map_error(error, self.may_redirect())
        })
    }
}

/// The outcome of what may take so long and no longer, whatever the client library tries meanwhile.
pub(super) async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    match timeout(limit, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

/// What an error of redis-rs means. Only an address of a cluster leads to the node that another one names.
pub(super) fn map_error(error: RedisError, is_cluster: bool) -> Error {
    if !is_cluster && error.code() == Some("MOVED") {
        let text = "the server is a node of a cluster, and another one serves this lock: open the address \
                    of the cluster, redis-cluster://host:port";
        return Error::Invalid(text.into());
    }
    error.into()
}

/// Whether a connection that gave this error is better replaced: it is lost, or silent, or leads to a
/// server that is no primary any more.
pub(super) fn should_reconnect(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_io_error()
        || matches!(
            error.kind(),
            redis::ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}
