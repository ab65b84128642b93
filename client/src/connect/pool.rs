use std::sync::Mutex;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionAddr, FromRedisValue};

use super::address::Address;
use super::connection::{Purpose, Timeouts};
use super::link::{in_time, map_error, should_reconnect};
use crate::error::Error;
use crate::sync::lock;

/// This many connections are kept for later requests.
const MAX_IDLE: usize = 16;

/// Connections for blocked requests, one request at a time on each.
pub(crate) struct BlockingPool {
    address: Address,
    timeouts: Timeouts,
    idle: Mutex<Vec<PooledConnection>>,
}

/// A connection for one blocked request. Dropped, it is closed, and the server removes the waiter.
pub(crate) struct PooledConnection {
    connection: MultiplexedConnection,
    node: ConnectionAddr,
    is_new: bool,
    in_cluster: bool,
}

impl BlockingPool {
    pub fn new(address: Address, timeouts: Timeouts) -> Self {
        Self {
            address,
            timeouts,
            idle: Mutex::default(),
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
        let index = idle.iter().rposition(|connection| connection.node == *node)?;
        Some(idle.remove(index))
    }

    /// The request on a connection was answered, with this error if any. Keeps the connection for the next request
    /// unless it is lost.
    pub fn checkin(&self, mut connection: PooledConnection, error: Option<&Error>) {
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
            idle.push(connection);
        } else if !connection.is_new {
            // It had been idle: the others may be dead, too.
            idle.retain(|other| other.node != connection.node);
        }
    }
}

impl PooledConnection {
    /// Sends a request and waits for its reply without a timeout.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let answer = command.query_async(&mut self.connection.clone()).await;
        answer.map_err(|error| map_error(error, self.in_cluster))
    }
}
