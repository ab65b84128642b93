use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
#[cfg(feature = "cluster")]
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisFuture, Value};

/// How long to wait for a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the reply to a request that does not block.
    pub response: Duration,
}

impl Timeouts {
    /// For the reply to a request that does not block, including the time to connect.
    pub fn request(self) -> Duration {
        self.connect.saturating_add(self.response)
    }

    pub fn config(self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect))
            .set_response_timeout(Some(self.response))
    }

    /// For blocked requests.
    pub fn config_without_response_timeout(self) -> AsyncConnectionConfig {
        self.config().set_response_timeout(None)
    }
}

/// What a shared connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Requests whose replies the application awaits. Data that the server has not acknowledged is discarded when the
    /// connection is closed: otherwise the system would retransmit it for a while, and an ACQUIRE could arrive, and be
    /// granted, after the requests that cancel it.
    Requests,
    /// Renewals and background releases. What was sent just before the process ends is still delivered.
    Renewal,
}

/// A connection that many tasks use at once.
#[derive(Clone)]
pub(crate) enum Connection {
    Node(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(ClusterConnection),
}

impl Connection {
    /// Whether requests may be redirected to another server, so that later ones can overtake them.
    pub fn may_redirect(&self) -> bool {
        !matches!(self, Self::Node(_))
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::Node(connection) => connection.req_packed_command(command),
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => connection.req_packed_command(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::Node(connection) => connection.req_packed_commands(pipeline, offset, count),
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::Node(connection) => connection.get_db(),
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => connection.get_db(),
        }
    }
}
