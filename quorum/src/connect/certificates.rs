//! Certificates of the application, for connections with TLS.

use redis::{ConnectionInfo, RedisResult};

/// Without any, those of the system count, and none is shown to servers.
#[derive(Default)]
pub(super) struct Certificates(#[cfg(feature = "tls-rustls")] pub Option<redis::TlsCertificates>);

impl Certificates {
    /// A server of these certificates, which must use TLS if there are any.
    pub fn apply(&self, info: ConnectionInfo) -> RedisResult<ConnectionInfo> {
        #[cfg(feature = "tls-rustls")]
        if let Some(certificates) = &self.0 {
            let client = redis::Client::build_with_tls(info, certificates.clone())?;
            return Ok(client.get_connection_info().clone());
        }
        Ok(info)
    }

    /// redis-rs does not take them from the addresses of the first nodes.
    #[cfg(feature = "cluster")]
    pub fn apply_to_cluster(
        &self,
        builder: redis::cluster::ClusterClientBuilder,
    ) -> redis::cluster::ClusterClientBuilder {
        #[cfg(feature = "tls-rustls")]
        if let Some(certificates) = &self.0 {
            return builder.certs(certificates.clone());
        }
        builder
    }

    /// For the primary. The Sentinels have theirs in their addresses.
    #[cfg(feature = "sentinel")]
    pub fn apply_to_primary(
        &self,
        builder: redis::sentinel::SentinelClientBuilder,
    ) -> redis::sentinel::SentinelClientBuilder {
        #[cfg(feature = "tls-rustls")]
        if let Some(certificates) = &self.0 {
            return builder.set_client_to_redis_certificates(certificates.clone());
        }
        builder
    }
}
