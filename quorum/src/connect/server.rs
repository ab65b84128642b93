use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::{Client, ConnectionAddr, RedisResult};
use tokio::sync::Notify;

use super::connection::{Connection, Purpose, Timeouts, connect_to};
use crate::error::Error;

/// What an address leads to. The defaults are those of one server.
///
/// Futures are boxed to keep those of applications small. Connecting takes much longer than an allocation.
pub(super) trait Server: Send + Sync {
    /// For messages. Never shows a password.
    fn label(&self) -> String;

    /// A client for the one server that serves a key, as far as known.
    fn client_for<'a>(&'a self, key: &'a [u8], purpose: Purpose) -> BoxFuture<'a, RedisResult<Client>>;

    /// A connection that many requests share. `disconnected` is notified when one for renewals is lost.
    fn connect(
        &self,
        timeouts: Timeouts,
        purpose: Purpose,
        disconnected: Arc<Notify>,
    ) -> BoxFuture<'_, RedisResult<Connection>> {
        Box::pin(async move {
            let client = self.client_for(&[], purpose).await?;
            connect_to(client, timeouts, purpose, disconnected).await
        })
    }

    /// Clients for the servers that grant locks.
    fn primaries(&self) -> BoxFuture<'_, Result<Vec<Client>, Error>> {
        Box::pin(async { Ok(vec![self.client_for(&[], Purpose::Requests).await?]) })
    }

    /// A client for the server that holds a lock of this key.
    fn node_for<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Client, Error>> {
        Box::pin(async { Ok(self.client_for(key, Purpose::Requests).await?) })
    }

    /// A node is unreachable, was lost, or does not serve the lock any more: the next connection may go elsewhere.
    fn forget(&self, _node: &ConnectionAddr) {}

    fn is_cluster(&self) -> bool {
        false
    }

    /// The server, if there is only one.
    #[cfg(feature = "quorum")]
    fn addr(&self) -> Option<&ConnectionAddr> {
        None
    }
}

impl Server for Client {
    fn label(&self) -> String {
        self.get_connection_info().addr().to_string()
    }

    fn client_for<'a>(&'a self, _: &'a [u8], _: Purpose) -> BoxFuture<'a, RedisResult<Client>> {
        Box::pin(async { Ok(self.clone()) })
    }

    #[cfg(feature = "quorum")]
    fn addr(&self) -> Option<&ConnectionAddr> {
        Some(self.get_connection_info().addr())
    }
}
