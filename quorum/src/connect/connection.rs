use std::sync::Arc;
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
#[cfg(feature = "cluster")]
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, ProtocolVersion, PushInfo, PushKind, RedisResult,
};
use tokio::sync::Notify;

use super::tcp::{keepalive_settings, with_zero_linger};

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

    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::Node(connection) => command.query_async(&mut connection.clone()).await,
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => command.query_async(&mut connection.clone()).await,
        }
    }
}

/// A connection to one server that many requests share.
pub(super) async fn connect_to(
    client: Client,
    timeouts: Timeouts,
    purpose: Purpose,
    disconnected: Arc<Notify>,
) -> RedisResult<Connection> {
    let mut info = client.get_connection_info().clone();
    if purpose == Purpose::Requests {
        info = info.set_tcp_settings(with_zero_linger(keepalive_settings()));
    } else {
        // Only a RESP3 connection reports its loss.
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.clone().set_redis_settings(settings))?;
        let config = timeouts.config().set_push_sender(on_disconnection(disconnected));
        match client.get_multiplexed_async_connection_with_config(&config).await {
            // The server, or a proxy before it, does not speak that.
            Err(error) if !error.is_io_error() => {}
            connected => return connected.map(Connection::Node),
        }
    }
    let config = timeouts.config();
    let client = Client::open(info)?;
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    connecting.await.map(Connection::Node)
}

pub(super) fn on_disconnection(disconnected: Arc<Notify>) -> impl AsyncPushSender {
    move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            disconnected.notify_one();
        }
        Ok::<(), SendError>(())
    }
}
