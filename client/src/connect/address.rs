use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::{AsyncPushSender, SendError};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, RedisResult};
use tokio::sync::Notify;

use super::certificates::Certificates;
use super::connection::{Connection, Purpose, Timeouts};
use super::endpoints::{Endpoints, invalid};
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
pub struct Address(pub(super) Arc<dyn Server>);

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

impl Address {
    /// What it leads to, to connect.
    pub(super) fn server(&self) -> &dyn Server {
        #[cfg(feature = "tls-rustls")]
        super::tls::install_crypto_provider();
        &*self.0
    }

    /// Clients for the servers that grant locks: the primary, or all primaries of a cluster.
    ///
    /// # Errors
    ///
    /// [`Error::Redis`]: no Sentinel or no node of the cluster could be reached.
    pub async fn primaries(&self) -> Result<Vec<Client>, Error> {
        self.server().primaries().await
    }

    /// A client for the server that holds a lock of this key.
    ///
    /// # Errors
    ///
    /// As [`Address::primaries`]; [`Error::Invalid`]: no node of the cluster serves the key's slot.
    pub async fn node_for(&self, key: impl AsRef<[u8]>) -> Result<Client, Error> {
        self.server().node_for(key.as_ref()).await
    }

    /// Whether it leads to one server: not to a cluster, and not to whichever server Sentinels name.
    #[cfg(feature = "quorum")]
    pub(crate) fn is_one_server(&self) -> bool {
        self.0.addr().is_some()
    }

    /// Whether both certainly lead to the same server, in whichever database.
    #[cfg(feature = "quorum")]
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        let name = |address: &Self| address.0.addr().map(ToString::to_string);
        name(self).is_some_and(|server| name(other) == Some(server))
    }

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
        Ok(Self(match endpoints {
            Endpoints::Node(info) => {
                let info = certificates.apply(with_keepalive(info)).map_err(invalid)?;
                Arc::new(Client::open(info).map_err(invalid)?)
            }
            #[cfg(feature = "cluster")]
            Endpoints::Cluster(nodes) => Arc::new(super::cluster::Cluster::new(nodes, certificates)?),
            #[cfg(feature = "sentinel")]
            Endpoints::Sentinel {
                sentinels,
                name,
                primary,
            } => {
                let sentinel = super::sentinel::Sentinel::new(&sentinels, &name, &primary, certificates);
                Arc::new(sentinel.map_err(invalid)?)
            }
        }))
    }
}

impl TryFrom<Endpoints> for Address {
    type Error = Error;

    fn try_from(endpoints: Endpoints) -> Result<Self, Error> {
        Self::build(endpoints, &Certificates::default())
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

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl fmt::Display for Address {
    /// Never shows a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.label())
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
pub(super) fn with_zero_linger(settings: TcpSettings) -> TcpSettings {
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
}
