use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use redis::{Cmd, FromRedisValue, RedisResult};
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
    pub address: Address,
    timeouts: Timeouts,
    purpose: Purpose,
    /// Gives up connections when there is no room for this one, if it is for renewals.
    pool: Option<Arc<BlockingPool>>,
    /// Notified when a connection for renewals is lost, even if nothing is sent.
    pub disconnected: Arc<Notify>,
    current: Mutex<Option<Current>>,
}

/// A connection, or the attempt to make one: all requests that arrive meanwhile share the outcome.
type Current = Shared<BoxFuture<'static, RedisResult<Arc<Connection>>>>;

/// The connection that a request took. Later requests on the same route do not overtake it.
#[derive(Clone)]
pub(crate) struct Route {
    link: Arc<Link>,
    current: Current,
    connection: Arc<Connection>,
}

impl Link {
    pub fn new(
        address: Address,
        timeouts: Timeouts,
        purpose: Purpose,
        pool: Option<Arc<BlockingPool>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            timeouts,
            purpose,
            pool,
            disconnected: Arc::default(),
            current: Mutex::default(),
        })
    }

    /// Sends a request once.
    pub async fn query<T: FromRedisValue>(self: &Arc<Self>, command: &Cmd) -> Result<T, Error> {
        self.route().await?.query(command).await
    }

    pub fn is_cluster(&self) -> bool {
        self.address.server().is_cluster()
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
        let current = lock(&self.current).get_or_insert_with(|| self.connect()).clone();
        let connection = current.clone().await;
        Ok(Route {
            link: Arc::clone(self),
            connection: connection.inspect_err(|_| self.discard(&current))?,
            current,
        })
    }

    /// In a task of its own, which goes on when the caller is cancelled.
    fn connect(self: &Arc<Self>) -> Current {
        let link = Arc::clone(self);
        let connecting = tokio::spawn(async move {
            let disconnected = Arc::clone(&link.disconnected);
            let connecting = link
                .address
                .server()
                .connect(link.timeouts, link.purpose, disconnected);
            let connected = in_time(link.timeouts.connect, connecting).await;
            connected.map(Arc::new).inspect_err(|error| {
                // Those that wait share the error, later requests do not.
                *lock(&link.current) = None;
                if let Some(pool) = &link.pool {
                    pool.on_renewal_connect_error(error);
                }
            })
        });
        let no_runtime = |_| Err(io::Error::from(io::ErrorKind::NotConnected).into());
        connecting
            .map(move |connected| connected.unwrap_or_else(no_runtime))
            .boxed()
            .shared()
    }

    /// The next request takes another connection.
    fn discard(&self, lost: &Current) {
        lock(&self.current).take_if(|current| current.ptr_eq(lost));
    }
}

impl Route {
    pub fn may_redirect(&self) -> bool {
        self.connection.may_redirect()
    }

    /// Sends a request once.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let query = self.connection.query(command);
        let reply = if self.may_redirect() {
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
