//! Servers, and connections to them.

use std::convert::Infallible;
use std::fmt;
#[cfg(feature = "cluster")]
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
#[cfg(feature = "sentinel")]
use std::sync::Arc;
#[cfg(feature = "cluster")]
use std::task::Poll;
use std::time::Duration;

use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
#[cfg(feature = "cluster")]
use redis::cluster::{ClusterClient, ClusterConfig};
#[cfg(feature = "cluster")]
use redis::cluster_async::ClusterConnection;
#[cfg(feature = "cluster")]
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
#[cfg(feature = "sentinel")]
use redis::sentinel::SentinelClient;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisError, RedisResult, Value,
};
use tokio::runtime;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::unconstrained;
use tokio::time::timeout;

use crate::error::Error;

/// How many commands may be without a reply. More would only wait in buffers.
pub(crate) const MAX_UNANSWERED: usize = 1000;
/// A peer that vanished without closing its connection is detected after about this long.
const DEAD_PEER: Duration = Duration::from_secs(10);

/// Where the locks are: made from a URL as text, or from redis-rs's `Client`, `ClusterClient` or `SentinelClient`.
#[derive(Clone)]
pub struct Server(Kind);

#[derive(Clone)]
enum Kind {
    Node(Box<Client>),
    #[cfg(feature = "cluster")]
    Cluster(Box<ClusterClient>),
    #[cfg(feature = "sentinel")]
    Sentinel(Arc<tokio::sync::Mutex<SentinelClient>>),
    #[cfg(all(test, feature = "testing"))]
    Simulated(crate::simulation::Network),
}

/// A connection, or several to the nodes of a cluster, for many requests at once.
#[derive(Clone)]
pub(crate) enum Connection {
    Node(MultiplexedConnection),
    #[cfg(feature = "cluster")]
    Cluster(ClusterConnection),
}

/// Of a command that was sent.
pub(crate) type Reply = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// A server that grants locks. One that is no cluster needs no address.
pub(crate) type Node = Option<(String, u16)>;

impl Server {
    /// Whether it is neither a cluster nor whichever server Sentinels name.
    pub fn is_one(&self) -> bool {
        matches!(self.0, Kind::Node(_))
    }

    /// Whether connections redirect requests.
    pub(crate) fn is_cluster(&self) -> bool {
        match &self.0 {
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => true,
            _ => false,
        }
    }

    #[cfg(all(test, feature = "testing"))]
    pub(crate) fn simulated(network: crate::simulation::Network) -> Self {
        Self(Kind::Simulated(network))
    }

    /// A connection, driven by the calling runtime. A reply may take as long as `replies_within`; whoever sends requests
    /// waits in its own way, perhaps in another runtime. `on_loss` is called when it is lost, if its protocol can tell.
    pub(crate) async fn connect(
        &self,
        limit: Duration,
        replies_within: Option<Duration>,
        _background: &runtime::Handle,
        on_loss: impl Fn() + Clone + Send + Sync + 'static,
    ) -> RedisResult<Connection> {
        let connecting = async {
            let client = match &self.0 {
                Kind::Node(client) => (**client).clone(),
                #[cfg(feature = "sentinel")]
                Kind::Sentinel(sentinels) => find_primary(sentinels, limit, _background).await?,
                #[cfg(feature = "cluster")]
                Kind::Cluster(client) => {
                    // Only RESP3 connections, if the application asked for them, tell of their loss.
                    let mut config = ClusterConfig::new().set_push_sender(on_disconnection(on_loss));
                    if let Some(replies_within) = replies_within {
                        config = config
                            .set_connection_timeout(limit)
                            .set_response_timeout(replies_within);
                    }
                    let connection = client.get_async_connection_with_config(config).await?;
                    return Ok(Connection::Cluster(connection));
                }
                #[cfg(all(test, feature = "testing"))]
                Kind::Simulated(network) => {
                    let config = AsyncConnectionConfig::new()
                        .set_response_timeout(replies_within)
                        .set_pipeline_buffer_size(MAX_UNANSWERED)
                        .set_push_sender(on_disconnection(on_loss));
                    return network.connect(config).await.map(Connection::Node);
                }
            };
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(limit))
                .set_response_timeout(replies_within)
                .set_pipeline_buffer_size(MAX_UNANSWERED);
            let mut connection = connect(&client, config, on_loss).await?;
            // For CLIENT LIST. Not every user may do that.
            let name = redis::cmd("CLIENT").arg("SETNAME").arg("dlock").take();
            let _ = connection.send_packed_command(&name).await;
            Ok(Connection::Node(connection))
        };
        in_time(limit, connecting).await
    }

    /// A connection on which requests may block for less than this long, for a task of the background.
    pub(crate) async fn connect_reader(
        &self,
        limit: Duration,
        replies_within: Duration,
    ) -> RedisResult<Connection> {
        let background = runtime::Handle::current();
        self.connect(limit, Some(replies_within), &background, || {})
            .await
    }
}

impl Connection {
    /// Sends a command. Its future may be polled in any thread, also after the end of the runtime that drives the
    /// connection. It keeps its permit until there is a reply, or it is dropped.
    pub fn send(self, command: Cmd, _runtime: &runtime::Handle, permit: OwnedSemaphorePermit) -> Reply {
        match self {
            // Tokio makes a task yield after many operations. This one must be on its way first.
            Self::Node(mut connection) => Box::pin(unconstrained(async move {
                let _permit = permit;
                connection.send_packed_command(&command).await?.extract_error()
            })),
            #[cfg(feature = "cluster")]
            Self::Cluster(mut connection) => {
                // Its future has timers of the runtime that drives the connection.
                let runtime = _runtime.clone();
                let sending = async move {
                    let _permit = permit;
                    query_cluster(&mut connection, &command).await
                };
                Box::pin(in_runtime(runtime, sending))
            }
        }
    }

    /// Sends a command to one server.
    pub async fn query_node(&mut self, command: &Cmd, _node: &Node) -> RedisResult<Value> {
        match self {
            Self::Node(connection) => connection.send_packed_command(command).await?.extract_error(),
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => {
                let Some((host, port)) = _node.clone() else {
                    return query_cluster(connection, command).await;
                };
                let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::ByAddress { host, port });
                let reply = connection.route_command(command.clone(), routing).await?;
                reply.extract_error()
            }
        }
    }

    /// The servers that grant locks.
    pub async fn primaries(&mut self) -> RedisResult<Vec<Node>> {
        match self {
            Self::Node(_) => Ok(vec![None]),
            #[cfg(feature = "cluster")]
            Self::Cluster(connection) => {
                let routing = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                let replies = connection.route_command(redis::cmd("PING"), routing).await?;
                let Value::Map(replies) = replies else {
                    return Err(io::Error::other("the cluster did not list its nodes").into());
                };
                replies
                    .into_iter()
                    .map(|(address, _)| parse_node(&address))
                    .collect()
            }
        }
    }
}

/// The server that Sentinels name. They are always asked in the background, whose runtime drives the connections to them.
#[cfg(feature = "sentinel")]
async fn find_primary(
    sentinels: &Arc<tokio::sync::Mutex<SentinelClient>>,
    limit: Duration,
    background: &runtime::Handle,
) -> RedisResult<Client> {
    let sentinels = Arc::clone(sentinels);
    let asking = background.spawn(in_time(limit, async move {
        sentinels.lock().await.async_get_client().await
    }));
    asking
        .await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::NotConnected).into()))
}

/// Runs this in a task of a runtime, from its first `await` on. When the runtime ends, its outcome is unknown.
#[cfg(feature = "cluster")]
async fn in_runtime<T: Send + 'static>(
    runtime: runtime::Handle,
    work: impl Future<Output = RedisResult<T>> + Send + 'static,
) -> RedisResult<T> {
    let mut work = Box::pin(unconstrained(work));
    // In the order of the calls.
    if let Poll::Ready(outcome) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
        return outcome;
    }
    let task = runtime.spawn(work);
    task.await
        .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::BrokenPipe).into()))
}

#[cfg(feature = "cluster")]
async fn query_cluster(connection: &mut ClusterConnection, command: &Cmd) -> RedisResult<Value> {
    use redis::aio::ConnectionLike;
    connection.req_packed_command(command).await?.extract_error()
}

#[cfg(feature = "cluster")]
fn parse_node(address: &Value) -> RedisResult<Node> {
    let address: String = redis::from_redis_value_ref(address)?;
    let parts = address.rsplit_once(':');
    let node = parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    match node {
        Some(node) => Ok(Some(node)),
        None => Err(io::Error::other(format!("the cluster has a node without a port: {address}")).into()),
    }
}

async fn connect(
    client: &Client,
    config: AsyncConnectionConfig,
    on_loss: impl Fn() + Clone + Send + Sync + 'static,
) -> RedisResult<MultiplexedConnection> {
    let info = with_tcp_settings(client);
    // Only a RESP3 connection tells of its loss.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let resp3 = Client::open(info.clone().set_redis_settings(settings))?;
    let push_config = config.clone().set_push_sender(on_disconnection(on_loss));
    match resp3
        .get_multiplexed_async_connection_with_config(&push_config)
        .await
    {
        // The server, or a proxy before it, does not speak that.
        Err(error) if !error.is_io_error() => {
            let resp2 = Client::open(info)?;
            resp2.get_multiplexed_async_connection_with_config(&config).await
        }
        connected => connected,
    }
}

fn on_disconnection(on_loss: impl Fn() + Send + Sync + 'static) -> impl AsyncPushSender {
    move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            on_loss();
        }
        Ok::<(), SendError>(())
    }
}

/// Sends small packets at once, detects dead peers, and discards what was not acknowledged when a connection is closed:
/// otherwise the system would retransmit it for a while, and an ACQUIRE could arrive after what takes it back.
fn with_tcp_settings(client: &Client) -> ConnectionInfo {
    let keepalive = TcpKeepalive::new()
        .with_time(DEAD_PEER / 2)
        .with_interval(DEAD_PEER / 4)
        .with_retries(2);
    let settings = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive)
        .set_linger_time(Duration::ZERO);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let settings = settings.set_user_timeout(DEAD_PEER);
    client.get_connection_info().clone().set_tcp_settings(settings)
}

/// Limits the time that redis-rs takes for all it tries.
async fn in_time<T>(limit: Duration, work: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    match timeout(limit, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

/// Whether to replace the connection that gave this error: it is lost, unresponsive, or leads to a server that is no
/// primary any more.
pub(crate) fn should_reconnect(error: &RedisError) -> bool {
    use redis::{ErrorKind, ServerErrorKind};
    error.is_unrecoverable_error()
        || error.is_io_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        )
}

/// A node redirects only those who know its cluster.
pub(crate) fn map_error(error: RedisError, server: &Server) -> Error {
    if !server.is_cluster() && matches!(error.code(), Some("MOVED" | "ASK")) {
        let text = "the server is a cluster node, and another node serves this lock: open the locks with a \
                    redis::cluster::ClusterClient";
        return Error::Invalid(text.into());
    }
    error.into()
}

/// The address, without credentials, for messages.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Node(client) => client.get_connection_info().addr().fmt(f),
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => f.write_str("the cluster"),
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(_) => f.write_str("the primary that the Sentinels name"),
            #[cfg(all(test, feature = "testing"))]
            Kind::Simulated(_) => f.write_str("the simulated server"),
        }
    }
}

impl From<Client> for Server {
    fn from(client: Client) -> Self {
        Self(Kind::Node(Box::new(client)))
    }
}

#[cfg(feature = "cluster")]
impl From<ClusterClient> for Server {
    fn from(client: ClusterClient) -> Self {
        Self(Kind::Cluster(Box::new(client)))
    }
}

#[cfg(feature = "sentinel")]
impl From<SentinelClient> for Server {
    fn from(client: SentinelClient) -> Self {
        Self(Kind::Sentinel(Arc::new(tokio::sync::Mutex::new(client))))
    }
}

impl TryFrom<&str> for Server {
    type Error = Error;

    fn try_from(url: &str) -> Result<Self, Error> {
        let client = Client::open(url).map_err(|error| Error::Invalid(error.to_string()))?;
        #[cfg(feature = "tls-rustls")]
        if matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. }) {
            install_crypto_provider();
        }
        #[cfg(not(feature = "tls-rustls"))]
        if matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. }) {
            return Err(Error::Invalid("rediss:// needs the feature `tls-rustls`".into()));
        }
        Ok(Self(Kind::Node(Box::new(client))))
    }
}

impl TryFrom<String> for Server {
    type Error = Error;

    fn try_from(url: String) -> Result<Self, Error> {
        Self::try_from(&*url)
    }
}

impl TryFrom<&String> for Server {
    type Error = Error;

    fn try_from(url: &String) -> Result<Self, Error> {
        Self::try_from(&**url)
    }
}

/// For functions that take a redis-rs client as well as text.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Uses the provider that the application installed, else ring.
#[cfg(feature = "tls-rustls")]
fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
