use std::sync::Mutex;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionAddr, FromRedisValue};

use super::address::Address;
use super::connection::{Purpose, Timeouts};
use super::link::{in_time, map_error, should_reconnect};
use crate::error::Error;
use crate::sync::lock;

/// So many connections are kept for waiters to come.
const MAX_IDLE: usize = 16;

/// Connections on which requests wait, one at a time on each.
pub(crate) struct BlockingPool {
    address: Address,
    timeouts: Timeouts,
    idle: Mutex<Vec<PooledConnection>>,
}

/// A connection for one request that waits. Dropped, it is closed, and the server forgets the request.
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

    /// A connection to the server that serves the key, as far as is known.
    pub async fn seat(&self, key: &[u8]) -> Result<PooledConnection, Error> {
        let client = in_time(
            self.timeouts.connect,
            self.address.client_for(key, Purpose::Requests),
        )
        .await?;
        let node = client.get_connection_info().addr().clone();
        if let Some(seat) = self.take_idle(&node) {
            return Ok(seat);
        }
        let connecting = Address::connect_to_wait(client, self.timeouts);
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
        let place = idle.iter().rposition(|seat| seat.node == *node)?;
        Some(idle.remove(place))
    }

    /// The request on a seat has been answered, by this error if any. For the next one, unless the
    /// connection is lost.
    pub fn leave(&self, mut seat: PooledConnection, error: Option<&Error>) {
        let error = error.and_then(Error::as_redis);
        let is_useless = error.is_some_and(should_reconnect);
        // A primary that is demoted sends its waiters away, by a connection that lasts.
        if is_useless || error.is_some_and(|error| error.code() == Some("UNBLOCKED")) {
            self.address.forget(&seat.node);
        }
        if let Some(error) = error {
            self.address.learn(error, &seat.node);
        }
        let mut idle = lock(&self.idle);
        if !is_useless {
            seat.is_new = false;
            if idle.len() == MAX_IDLE {
                idle.remove(0);
            }
            idle.push(seat);
        } else if !seat.is_new {
            // It had been idle: the others may have died with it.
            idle.retain(|other| other.node != seat.node);
        }
    }
}

impl PooledConnection {
    /// Sends a request, and waits for its answer as long as it takes.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let answer = command.query_async(&mut self.connection.clone()).await;
        answer.map_err(|error| map_error(error, self.in_cluster))
    }
}
