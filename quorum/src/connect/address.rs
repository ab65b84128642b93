use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use redis::Client;
#[cfg(feature = "sentinel")]
use redis::sentinel::SentinelClient;

use super::certificates::Certificates;
#[cfg(feature = "cluster")]
use super::cluster::Cluster;
use super::endpoints::{Endpoints, invalid};
#[cfg(feature = "sentinel")]
use super::sentinel::Sentinel;
use super::server::Server;
use super::tcp::with_keepalive;
use crate::error::Error;

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
    /// use redis_dlock_quorum::{Address, Endpoints, Locks};
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
            Endpoints::Cluster(nodes) => Arc::new(Cluster::new(nodes, certificates)?),
            #[cfg(feature = "sentinel")]
            Endpoints::Sentinel {
                sentinels,
                name,
                primary,
            } => {
                let sentinel = Sentinel::new(&sentinels, &name, &primary, certificates);
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

#[cfg(feature = "sentinel")]
impl TryFrom<SentinelClient> for Address {
    type Error = Error;

    /// A client that the application configured.
    fn try_from(client: SentinelClient) -> Result<Self, Error> {
        Ok(Self(Arc::new(Sentinel::from(client))))
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
