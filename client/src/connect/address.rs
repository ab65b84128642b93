use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::aio::{AsyncPushSender, SendError};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult,
};
use tokio::sync::Notify;

use super::certificates::Certificates;
use super::connection::{Connection, Purpose, Timeouts};
use super::endpoints::{Endpoints, invalid};
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinel;
#[cfg(feature = "cluster")]
use super::slots::SlotCache;
use crate::error::Error;

/// A peer that vanished without closing its connection is detected after about this long.
const DEAD_PEER: Duration = Duration::from_secs(10);

/// Where the server is.
///
/// | text | what |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db]` | one server; `rediss://` for TLS (feature `tls-rustls`) |
/// | `unix:///path/to/socket[?db=1]` | one server, over a Unix socket |
/// | `redis-sentinel://[user:password@]host[:port],host[:port]/name[/db]` | the primary that these Sentinels know by that name (feature `sentinel`). User and password are those of the primary. `rediss-sentinel://` uses TLS for all connections |
/// | `redis-cluster://[user:password@]host[:port],host[:port]` | the cluster of these nodes (feature `cluster`); `rediss-cluster://` for TLS |
///
/// For what the text cannot express, use [`Endpoints`], `Address::with_certificates`, a [`redis::Client`] or a
/// `redis::sentinel::SentinelClient`. Requests and renewals share such a `SentinelClient`: after a failover, a renewal
/// may have to wait for a task of the application that is asking the Sentinels. An address from text has one for each.
///
/// In a cluster, redis-rs itself retries a request whose connection was lost. This is harmless, because requests
/// carry request ids. It cannot be turned off: redis-rs uses the same mechanism to follow a slot to another node.
#[derive(Clone)]
pub struct Address(Arc<Kind>);

/// Boxed to keep the futures of applications small. Connecting takes much longer than an allocation.
type Connecting<'a, C> = Pin<Box<dyn Future<Output = RedisResult<C>> + Send + 'a>>;

enum Kind {
    Node(Box<Client>),
    #[cfg(feature = "sentinel")]
    Sentinel(Box<Sentinel>),
    #[cfg(feature = "cluster")]
    Cluster(Box<Cluster>),
}

#[cfg(feature = "cluster")]
struct Cluster {
    client: redis::cluster::ClusterClient,
    renewal_client: redis::cluster::ClusterClient,
    slots: SlotCache,
}

impl Address {
    /// A connection that many requests share.
    pub(crate) fn connect(
        &self,
        timeouts: Timeouts,
        purpose: Purpose,
        disconnected: Option<Arc<Notify>>,
    ) -> Connecting<'_, Connection> {
        Box::pin(async move {
            #[cfg(feature = "cluster")]
            if let Kind::Cluster(cluster) = &*self.0 {
                #[cfg(feature = "tls-rustls")]
                install_crypto_provider();
                let mut config = redis::cluster::ClusterConfig::new()
                    .set_connection_timeout(timeouts.connect)
                    .set_response_timeout(timeouts.response);
                let client = match purpose {
                    Purpose::Requests => &cluster.client,
                    Purpose::Renewal => &cluster.renewal_client,
                };
                if let Some(disconnected) = disconnected {
                    config = config.set_push_sender(on_disconnection(disconnected));
                }
                let connection = client.get_async_connection_with_config(config).await?;
                return Ok(Connection::Cluster(connection));
            }
            // The last connection is gone, and so may be the primary that it led to.
            #[cfg(feature = "sentinel")]
            if let Kind::Sentinel(sentinel) = &*self.0 {
                sentinel.discovery(purpose).forget_primary();
            }
            let mut client = self.client_for(&[], purpose).await?;
            if let Some(disconnected) = disconnected
                && let Some(connection) = connect_with_notice(&client, timeouts, disconnected).await?
            {
                return Ok(Connection::Node(connection));
            }
            if purpose == Purpose::Requests {
                let info = client.get_connection_info().clone();
                client = Client::open(info.set_tcp_settings(with_zero_linger(keepalive_settings())))?;
            }
            let config = timeouts.config();
            let connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            Ok(Connection::Node(connection))
        })
    }

    /// A connection for one blocked request at a time, to this server only.
    pub(crate) fn connect_blocking(
        client: Client,
        timeouts: Timeouts,
    ) -> Connecting<'static, MultiplexedConnection> {
        Box::pin(async move {
            let config = timeouts.config_without_response_timeout();
            client.get_multiplexed_async_connection_with_config(&config).await
        })
    }

    /// A client for the one server that serves a key, as far as known.
    #[cfg_attr(not(all(feature = "cluster", feature = "sentinel")), expect(unused_variables))]
    pub(crate) fn client_for<'a>(&'a self, key: &'a [u8], purpose: Purpose) -> Connecting<'a, Client> {
        Box::pin(async move {
            #[cfg(feature = "tls-rustls")]
            install_crypto_provider();
            match &*self.0 {
                Kind::Node(client) => Ok(Client::clone(client)),
                #[cfg(feature = "sentinel")]
                Kind::Sentinel(sentinel) => sentinel.discovery(purpose).primary().await,
                #[cfg(feature = "cluster")]
                Kind::Cluster(cluster) => Client::open(cluster.slots.node_for(key)),
            }
        })
    }

    /// Clients for the servers that grant locks: the primary, or all primaries of a cluster.
    ///
    /// # Errors
    ///
    /// [`Error::Redis`]: no Sentinel or no node of the cluster could be reached.
    pub async fn primaries(&self) -> Result<Vec<Client>, Error> {
        #[cfg(feature = "cluster")]
        if let Kind::Cluster(cluster) = &*self.0 {
            let map = cluster.slots.fetch().await?;
            let clients = map.primaries().into_iter().map(Client::open);
            return Ok(clients.collect::<RedisResult<_>>()?);
        }
        Ok(vec![self.client_for(&[], Purpose::Requests).await?])
    }

    /// A client for the server that holds a lock of this key.
    ///
    /// # Errors
    ///
    /// As [`Address::primaries`]; [`Error::Invalid`]: no node of the cluster serves the key's slot.
    pub async fn node_for(&self, key: impl AsRef<[u8]>) -> Result<Client, Error> {
        let key = key.as_ref();
        #[cfg(feature = "cluster")]
        if let Kind::Cluster(cluster) = &*self.0 {
            let node = cluster.slots.fetch().await?.node_for(key)?;
            return Ok(Client::open(node)?);
        }
        Ok(self.client_for(key, Purpose::Requests).await?)
    }

    /// Whether both certainly lead to the same server, in whichever database.
    #[cfg(feature = "quorum")]
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        match (&*self.0, &*other.0) {
            (Kind::Node(one), Kind::Node(other)) => {
                let (one, other) = (one.get_connection_info(), other.get_connection_info());
                one.addr().to_string() == other.addr().to_string()
            }
            #[cfg(any(feature = "cluster", feature = "sentinel"))]
            _ => false,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        match &*self.0 {
            Kind::Node(_) => false,
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(_) => false,
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => true,
        }
    }

    /// Updates the slot cache from a MOVED error of a node.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables))]
    pub(crate) fn on_redirect(&self, error: &RedisError, node: &ConnectionAddr) {
        #[cfg(feature = "cluster")]
        if let Kind::Cluster(cluster) = &*self.0 {
            cluster.slots.on_redirect(error, node);
        }
    }

    /// A node is unreachable, was lost, or is not a primary any more: the next connection may go elsewhere.
    #[cfg_attr(not(any(feature = "cluster", feature = "sentinel")), expect(unused_variables))]
    pub(crate) fn forget(&self, node: &ConnectionAddr) {
        match &*self.0 {
            Kind::Node(_) => {}
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(sentinel) => sentinel.forget(node),
            #[cfg(feature = "cluster")]
            Kind::Cluster(cluster) => cluster.slots.forget(node),
        }
    }
}

impl Address {
    /// The servers of these endpoints, which must all use TLS: the CA certificate that they are verified with instead of
    /// the system's, and the certificate that is shown to them.
    ///
    /// ```no_run
    /// use redis_dlock_client::{Address, Endpoints, Locks};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let endpoints: Endpoints = "rediss-cluster://one:6379,two:6379".parse()?;
    /// let certificates = redis::TlsCertificates {
    ///     root_cert: Some(std::fs::read("ca.crt")?),
    ///     client_tls: Some(redis::ClientTlsConfig {
    ///         client_cert: std::fs::read("client.crt")?,
    ///         client_key: std::fs::read("client.key")?,
    ///     }),
    /// };
    /// let locks = Locks::open(Address::with_certificates(endpoints, certificates)?)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`]: an endpoint is without TLS, or a certificate or key cannot be used.
    #[cfg(feature = "tls-rustls")]
    pub fn with_certificates(
        endpoints: Endpoints,
        certificates: redis::TlsCertificates,
    ) -> Result<Self, Error> {
        Self::build(endpoints, &Certificates(Some(certificates)))
    }

    fn build(endpoints: Endpoints, certificates: &Certificates) -> Result<Self, Error> {
        let kind = match endpoints {
            Endpoints::Node(info) => {
                let info = certificates.apply(with_keepalive(info)).map_err(invalid)?;
                Kind::Node(Box::new(Client::open(info).map_err(invalid)?))
            }
            #[cfg(feature = "cluster")]
            Endpoints::Cluster(nodes) => Kind::Cluster(Box::new(Cluster::new(nodes, certificates)?)),
            #[cfg(not(feature = "cluster"))]
            Endpoints::Cluster(_) => {
                return Err(super::endpoints::missing_feature(
                    "the address of a cluster",
                    "cluster",
                ));
            }
            #[cfg(feature = "sentinel")]
            Endpoints::Sentinel {
                sentinels,
                name,
                primary,
            } => Kind::Sentinel(Box::new(
                Sentinel::new(&sentinels, &name, &primary, certificates).map_err(invalid)?,
            )),
            #[cfg(not(feature = "sentinel"))]
            Endpoints::Sentinel { .. } => {
                return Err(super::endpoints::missing_feature(
                    "the address of Sentinels",
                    "sentinel",
                ));
            }
        };
        Ok(Self(Arc::new(kind)))
    }
}

impl TryFrom<Endpoints> for Address {
    type Error = Error;

    fn try_from(endpoints: Endpoints) -> Result<Self, Error> {
        Self::build(endpoints, &Certificates::default())
    }
}

#[cfg(feature = "cluster")]
impl Cluster {
    fn new(nodes: Vec<ConnectionInfo>, certificates: &Certificates) -> Result<Self, Error> {
        let nodes: Vec<ConnectionInfo> = nodes
            .into_iter()
            .map(|node| certificates.apply(with_keepalive(node)).map_err(invalid))
            .collect::<Result<_, _>>()?;
        let builder = |settings| {
            let builder = redis::cluster::ClusterClient::builder(nodes.clone()).tcp_settings(settings);
            certificates.apply_to_cluster(builder)
        };
        let requests = builder(with_zero_linger(keepalive_settings()));
        // RESP3 reports lost connections.
        let renewals = builder(keepalive_settings()).use_protocol(ProtocolVersion::RESP3);
        Ok(Self {
            client: requests.build().map_err(invalid)?,
            renewal_client: renewals.build().map_err(invalid)?,
            slots: SlotCache::new(nodes)?,
        })
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.parse::<Endpoints>()?.try_into()
    }
}

impl TryFrom<&str> for Address {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        text.parse()
    }
}

impl TryFrom<String> for Address {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl TryFrom<Client> for Address {
    type Error = Error;

    fn try_from(client: Client) -> Result<Self, Error> {
        Endpoints::Node(client.get_connection_info().clone()).try_into()
    }
}

#[cfg(feature = "sentinel")]
impl TryFrom<redis::sentinel::SentinelClient> for Address {
    type Error = Error;

    fn try_from(client: redis::sentinel::SentinelClient) -> Result<Self, Error> {
        Ok(Self(Arc::new(Kind::Sentinel(Box::new(Sentinel::shared(client))))))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl fmt::Display for Address {
    /// Never shows a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Node(client) => client.get_connection_info().addr().fmt(f),
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(sentinel) => f.write_str(sentinel.label()),
            #[cfg(feature = "cluster")]
            Kind::Cluster(cluster) => write!(f, "cluster of {}", cluster.slots.first_seed().addr()),
        }
    }
}

fn on_disconnection(disconnected: Arc<Notify>) -> impl AsyncPushSender {
    move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            disconnected.notify_one();
        }
        Ok::<(), SendError>(())
    }
}

/// A connection that reports its loss, which takes RESP3; `None` if the server, or a proxy before it, does not speak that.
async fn connect_with_notice(
    client: &Client,
    timeouts: Timeouts,
    disconnected: Arc<Notify>,
) -> RedisResult<Option<MultiplexedConnection>> {
    let info = client.get_connection_info().clone();
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    let client = Client::open(info.set_redis_settings(settings))?;
    let config = timeouts.config().set_push_sender(on_disconnection(disconnected));
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    match connecting.await {
        Ok(connection) => Ok(Some(connection)),
        Err(error) if error.is_io_error() => Err(error),
        Err(_) => Ok(None),
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

/// Sends small packets at once and detects dead peers.
pub(super) fn with_keepalive(info: ConnectionInfo) -> ConnectionInfo {
    info.set_tcp_settings(keepalive_settings())
}

pub(super) fn keepalive_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(DEAD_PEER / 2)
        .with_interval(DEAD_PEER / 4)
        .with_retries(2);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let settings = settings.set_user_timeout(DEAD_PEER);
    settings
}

/// Discards unacknowledged data when the connection closes: see [`Purpose::Requests`].
fn with_zero_linger(settings: TcpSettings) -> TcpSettings {
    settings.set_linger_time(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_displayed_without_its_password() {
        let address: Address = "redis://alice:secret@example.com:7000/2".parse().unwrap();
        assert_eq!(format!("{address:?}"), "Address(example.com:7000)");
    }

    #[test]
    fn invalid_address_is_rejected_with_a_reason() {
        for text in ["", "nonsense", "http://example.com", "redis://"] {
            let error = Address::try_from(text).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{text}: {error:?}");
        }
        let error = Address::try_from("redis-sentinel://one:26379,two").unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn cluster_address_takes_several_nodes() {
        let address: Address = "redis-cluster://:secret@one:7000,two:7001/".parse().unwrap();
        assert_eq!(format!("{address:?}"), "Address(cluster of one:7000)");
    }

    #[cfg(feature = "sentinel")]
    #[test]
    fn sentinel_address_takes_the_name_of_the_primary() {
        let address = Address::try_from("redis-sentinel://:secret@one:26379,two/main/3").unwrap();
        assert_eq!(address.to_string(), "main known to Sentinel one:26379,two:26379");
        assert!(Address::try_from("redis-sentinel://one/main/nonsense").is_err());
    }
}
