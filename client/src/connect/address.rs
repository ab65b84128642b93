use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
#[cfg(feature = "sentinel")]
use std::sync::Mutex;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError, RedisResult};

use super::connection::{Connection, Purpose, Timeouts};
#[cfg(feature = "cluster")]
use super::slots::Slots;
use crate::error::Error;
#[cfg(feature = "sentinel")]
use crate::sync::lock;

/// A peer that the network lost without a word is noticed after about this long.
const DEAD_PEER: Duration = Duration::from_secs(10);

/// Where the server is.
///
/// | text | what |
/// |---|---|
/// | `redis://[user:password@]host[:port][/db]` | one server; `rediss://` for TLS (feature `tls-rustls`) |
/// | `unix:///path/to/socket[?db=1]` | one server, by its socket |
/// | `redis-sentinel://[user:password@]host[:port],host[:port]/name[/db]` | the primary that these Sentinels know by that name (feature `sentinel`). User and password are those of the primary. `rediss-sentinel://` for TLS everywhere |
/// | `redis-cluster://[user:password@]host[:port],host[:port]` | the cluster that these nodes belong to (feature `cluster`); `rediss-cluster://` for TLS |
///
/// What does not fit in a text, certificates for instance, comes in a [`redis::Client`] or a
/// `redis::sentinel::SentinelClient`. Such a client of Sentinels serves requests and renewal_thread alike: after a failover,
/// renewal_thread may wait for a task of the application that asks the Sentinels. A text makes two.
///
/// In a cluster, redis-rs itself repeats a request whose connection was lost. That does no harm: requests are
/// repeated with their ids. It cannot be switched off, for it is also how redis-rs follows a slot to another node.
#[derive(Clone)]
pub struct Address(Arc<Kind>);

/// To connect takes long enough for an allocation, and it keeps the futures of an application small: what
/// the client library does here is nested deeper than the compiler likes.
type Connecting<'a, C> = Pin<Box<dyn Future<Output = RedisResult<C>> + Send + 'a>>;

enum Kind {
    Node(Box<Client>),
    #[cfg(feature = "sentinel")]
    Sentinel(Box<Sentinel>),
    #[cfg(feature = "cluster")]
    Cluster(Box<Cluster>),
}

#[cfg(feature = "sentinel")]
struct Sentinel {
    requests: Search,
    /// One of its own: a search that the application has begun goes on only while its runtime runs. It has none when it
    /// gave the client itself, of which there is one.
    renewal: Option<Search>,
    /// What to call it. The client does not tell.
    label: String,
}

/// A way to find the primary.
#[cfg(feature = "sentinel")]
struct Search {
    client: tokio::sync::Mutex<redis::sentinel::SentinelClient>,
    /// The primary that the Sentinels told of. To ask them takes several connections, and long when one of them is
    /// silent.
    primary: Mutex<Option<Client>>,
}

#[cfg(feature = "cluster")]
struct Cluster {
    client: redis::cluster::ClusterClient,
    renewal_client: redis::cluster::ClusterClient,
    slots: Slots,
}

impl Address {
    /// A connection that is to be shared.
    pub(crate) fn connect(&self, timeouts: Timeouts, purpose: Purpose) -> Connecting<'_, Connection> {
        Box::pin(async move {
            #[cfg(feature = "cluster")]
            if let Kind::Cluster(cluster) = &*self.0 {
                #[cfg(feature = "tls-rustls")]
                provide_cryptography();
                let config = redis::cluster::ClusterConfig::new()
                    .set_connection_timeout(timeouts.connect)
                    .set_response_timeout(timeouts.response);
                let client = match purpose {
                    Purpose::Requests => &cluster.client,
                    Purpose::Renewal => &cluster.renewal_client,
                };
                let connection = client.get_async_connection_with_config(config).await?;
                return Ok(Connection::Cluster(connection));
            }
            // Whatever led to the last connection, it is of no use any more.
            #[cfg(feature = "sentinel")]
            if let Kind::Sentinel(sentinel) = &*self.0 {
                *lock(&sentinel.search(purpose).primary) = None;
            }
            let mut client = self.client_for(&[], purpose).await?;
            if purpose == Purpose::Requests {
                let info = client.get_connection_info().clone();
                client = Client::open(info.set_tcp_settings(with_zero_linger(tcp_settings())))?;
            }
            let config = timeouts.config();
            let connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            Ok(Connection::Node(connection))
        })
    }

    /// A connection to wait on, to this server alone.
    pub(crate) fn connect_to_wait(
        client: Client,
        timeouts: Timeouts,
    ) -> Connecting<'static, MultiplexedConnection> {
        Box::pin(async move {
            let config = timeouts.config_to_wait();
            client.get_multiplexed_async_connection_with_config(&config).await
        })
    }

    /// What connects to the one server that serves a key, as far as is known.
    #[cfg_attr(not(all(feature = "cluster", feature = "sentinel")), expect(unused_variables))]
    pub(crate) fn client_for<'a>(&'a self, key: &'a [u8], purpose: Purpose) -> Connecting<'a, Client> {
        Box::pin(async move {
            #[cfg(feature = "tls-rustls")]
            provide_cryptography();
            match &*self.0 {
                Kind::Node(client) => Ok(Client::clone(client)),
                #[cfg(feature = "sentinel")]
                Kind::Sentinel(sentinel) => sentinel.search(purpose).primary().await,
                #[cfg(feature = "cluster")]
                Kind::Cluster(cluster) => Client::open(cluster.slots.place(key)),
            }
        })
    }

    #[cfg(feature = "sentinel")]
    fn of_sentinel(
        client: redis::sentinel::SentinelClient,
        renewal: Option<redis::sentinel::SentinelClient>,
        label: String,
    ) -> Self {
        Self(Arc::new(Kind::Sentinel(Box::new(Sentinel {
            requests: Search::new(client),
            renewal: renewal.map(Search::new),
            label,
        }))))
    }

    /// Whether both certainly lead to the same server, whatever the database.
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

    /// Learns from an error of a node that a key is served elsewhere.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables))]
    pub(crate) fn learn(&self, error: &RedisError, node: &ConnectionAddr) {
        #[cfg(feature = "cluster")]
        if let Kind::Cluster(cluster) = &*self.0 {
            cluster.slots.learn(error, node);
        }
    }

    /// A node cannot be reached, or was lost, or is no primary any more: another one may be the right one now.
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

#[cfg(feature = "sentinel")]
impl Sentinel {
    fn search(&self, purpose: Purpose) -> &Search {
        match (purpose, &self.renewal) {
            (Purpose::Renewal, Some(search)) => search,
            _ => &self.requests,
        }
    }

    fn forget(&self, node: &ConnectionAddr) {
        for search in std::iter::once(&self.requests).chain(&self.renewal) {
            search.forget(node);
        }
    }
}

#[cfg(feature = "sentinel")]
impl Search {
    fn new(client: redis::sentinel::SentinelClient) -> Self {
        Self {
            client: tokio::sync::Mutex::new(client),
            primary: Mutex::default(),
        }
    }

    /// One task asks. The others that came meanwhile share its answer.
    async fn primary(&self) -> RedisResult<Client> {
        if let Some(primary) = self.known() {
            return Ok(primary);
        }
        let mut client = self.client.lock().await;
        if let Some(primary) = self.known() {
            return Ok(primary);
        }
        let told = client.async_get_client().await?;
        let primary = Client::open(with_keepalive(told.get_connection_info().clone()))?;
        *lock(&self.primary) = Some(primary.clone());
        Ok(primary)
    }

    fn known(&self) -> Option<Client> {
        lock(&self.primary).clone()
    }

    fn forget(&self, node: &ConnectionAddr) {
        lock(&self.primary).take_if(|primary| primary.get_connection_info().addr() == node);
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once("://") {
            Some(("redis-cluster", rest)) => cluster("redis", rest),
            Some(("rediss-cluster", rest)) => cluster("rediss", rest),
            Some(("redis-sentinel", rest)) => sentinel("redis", rest),
            Some(("rediss-sentinel", rest)) => sentinel("rediss", rest),
            _ => Client::open(text).map_err(invalid)?.try_into(),
        }
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
        let client = Client::open(with_keepalive(client.get_connection_info().clone())).map_err(invalid)?;
        Ok(Self(Arc::new(Kind::Node(Box::new(client)))))
    }
}

#[cfg(feature = "sentinel")]
impl TryFrom<redis::sentinel::SentinelClient> for Address {
    type Error = Error;

    fn try_from(client: redis::sentinel::SentinelClient) -> Result<Self, Error> {
        Ok(Self::of_sentinel(client, None, "by Sentinel".into()))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl fmt::Display for Address {
    /// Tells no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Node(client) => client.get_connection_info().addr().fmt(f),
            #[cfg(feature = "sentinel")]
            Kind::Sentinel(sentinel) => f.write_str(&sentinel.label),
            #[cfg(feature = "cluster")]
            Kind::Cluster(cluster) => write!(f, "cluster of {}", cluster.slots.first().addr()),
        }
    }
}

/// TLS needs a provider of cryptography: the one that the application has installed, else this one.
#[cfg(feature = "tls-rustls")]
fn provide_cryptography() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// Small messages leave at once, and a dead peer is noticed.
fn with_keepalive(info: ConnectionInfo) -> ConnectionInfo {
    info.set_tcp_settings(tcp_settings())
}

fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(DEAD_PEER / 2)
        .with_interval(DEAD_PEER / 4)
        .with_retries(2);
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "linux"))]
    let settings = settings.set_user_timeout(DEAD_PEER);
    settings
}

/// What the peer has not received when the connection is closed is not sent again: see [`Purpose::Requests`].
fn with_zero_linger(settings: TcpSettings) -> TcpSettings {
    settings.set_linger_time(Duration::ZERO)
}

fn invalid(error: RedisError) -> Error {
    Error::Invalid(format!("the address cannot be used: {error}"))
}

/// `user:password@` or nothing, and the rest.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn split_credentials(rest: &str) -> (&str, &str) {
    match rest.rfind('@') {
        Some(at) => rest.split_at(at + 1),
        None => ("", rest),
    }
}

#[cfg(feature = "cluster")]
fn cluster(scheme: &str, rest: &str) -> Result<Address, Error> {
    let (credentials, hosts) = split_credentials(rest);
    let hosts = hosts.trim_end_matches('/');
    let nodes: Vec<String> = hosts
        .split(',')
        .map(|host| format!("{scheme}://{credentials}{host}"))
        .collect();
    let client = |settings| {
        redis::cluster::ClusterClient::builder(nodes.iter().map(String::as_str))
            .tcp_settings(settings)
            .build()
            .map_err(invalid)
    };
    let renewal_client = client(tcp_settings())?;
    let client = client(with_zero_linger(tcp_settings()))?;
    let named: RedisResult<Vec<ConnectionInfo>> = nodes
        .iter()
        .map(|node| Ok(with_keepalive(node.parse()?)))
        .collect();
    let slots = Slots::new(named.map_err(invalid)?);
    Ok(Address(Arc::new(Kind::Cluster(Box::new(Cluster {
        client,
        renewal_client,
        slots,
    })))))
}

#[cfg(not(feature = "cluster"))]
fn cluster(_: &str, _: &str) -> Result<Address, Error> {
    Err(Error::Invalid(
        "the address of a cluster needs the feature `cluster` of redis-dlock-client".into(),
    ))
}

#[cfg(feature = "sentinel")]
fn sentinel(scheme: &str, rest: &str) -> Result<Address, Error> {
    use redis::TlsMode;
    use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};

    let (credentials, rest) = split_credentials(rest);
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, db) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err(Error::Invalid(
            "the address of Sentinels needs the name of the primary: redis-sentinel://host:26379/name".into(),
        ));
    }
    let sentinels: Vec<String> = hosts
        .split(',')
        .map(|host| format!("{scheme}://{host}"))
        .collect();
    // Only for the user, the password and the database in it.
    let primary: ConnectionInfo = format!("redis://{credentials}primary/{db}")
        .parse()
        .map_err(invalid)?;
    let mut node = SentinelNodeConnectionInfo::default()
        .set_redis_connection_info(primary.redis_settings().clone())
        .set_tcp_settings(tcp_settings());
    if scheme == "rediss" {
        node = node.set_tls_mode(TlsMode::Secure);
    }
    let client = || {
        let sentinels = sentinels.iter().map(String::as_str).collect();
        let primary = SentinelServerType::Master;
        SentinelClient::build(sentinels, String::from(name), Some(node.clone()), primary).map_err(invalid)
    };
    let label = format!("{name} by Sentinel {hosts}");
    Ok(Address::of_sentinel(client()?, Some(client()?), label))
}

#[cfg(not(feature = "sentinel"))]
fn sentinel(_: &str, _: &str) -> Result<Address, Error> {
    Err(Error::Invalid(
        "the address of Sentinels needs the feature `sentinel` of redis-dlock-client".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_and_shown_without_its_password() {
        let address: Address = "redis://alice:secret@example.com:7000/2".parse().unwrap();
        assert_eq!(format!("{address:?}"), "Address(example.com:7000)");
    }

    #[test]
    fn an_address_that_cannot_be_is_refused_with_a_reason() {
        for text in ["", "nonsense", "http://example.com", "redis://"] {
            let error = Address::try_from(text).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{text}: {error:?}");
        }
        let error = Address::try_from("redis-sentinel://one:26379,two").unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn an_address_of_a_cluster_names_several_nodes() {
        let address: Address = "redis-cluster://:secret@one:7000,two:7001/".parse().unwrap();
        assert_eq!(format!("{address:?}"), "Address(cluster of one:7000)");
    }

    #[cfg(feature = "sentinel")]
    #[test]
    fn an_address_of_sentinels_names_the_primary() {
        let address = Address::try_from("redis-sentinel://:secret@one:26379,two/main/3").unwrap();
        assert_eq!(address.to_string(), "main by Sentinel one:26379,two");
        assert!(Address::try_from("redis-sentinel://one/main/nonsense").is_err());
    }
}
