//! The address of a [`Target`] for the client library.

use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{ConnectionInfo, TlsCertificates, TlsMode};
use redis_dlock_client::{Address, Endpoints};

use super::target::{Target, block_on, cluster_of};
use crate::exit::{Code, Failure};

impl Target {
    /// Connects once, so that an unreachable server, a wrong password or a replica is reported at once.
    pub fn client_address(&self) -> Result<Address, Failure> {
        let mut first = self.first()?;
        let name = first.name.clone();
        let unavailable = |reason: &str| Err(Failure::new(Code::Unavailable, format!("{name} {reason}")));
        if self.is_cluster(&mut first) {
            if self.certificates.is_some() {
                return Err(Failure::usage(
                    "dlock run cannot use --cacert and --cert with a cluster: set SSL_CERT_FILE to the CA certificate \
                     instead",
                ));
            }
            let cluster = cluster_of(&first)?;
            if block_on(cluster.primaries())?.is_empty() {
                return unavailable(
                    "is a node of a cluster that serves no slots yet: create the cluster with redis-cli --cluster create",
                );
            }
            return match &self.endpoints {
                Endpoints::Node(_) => Ok(cluster),
                _ => Ok(self.endpoints.clone().try_into()?),
            };
        }
        let is_replica = first
            .info("replication")
            .is_ok_and(|info| info.get("role") == "slave");
        if is_replica {
            return unavailable(
                "is a replica and cannot grant locks: connect to the primary or the Sentinels",
            );
        }
        match (&self.endpoints, &self.certificates) {
            (
                Endpoints::Sentinel {
                    sentinels,
                    name,
                    primary,
                    ..
                },
                Some(certificates),
            ) => sentinel_client(sentinels, name, primary, certificates),
            _ => Ok(self.endpoints.clone().try_into()?),
        }
    }
}

/// [`Endpoints`] with Sentinels do not carry the certificates for the primary.
fn sentinel_client(
    sentinels: &[ConnectionInfo],
    name: &str,
    primary: &ConnectionInfo,
    certificates: &TlsCertificates,
) -> Result<Address, Failure> {
    let addresses = sentinels.iter().map(|info| info.addr().clone());
    let settings = primary.redis_settings();
    let mut builder = SentinelClientBuilder::new(addresses, name, SentinelServerType::Master)?
        .set_client_to_redis_db(settings.db())
        .set_client_to_redis_tls_mode(TlsMode::Secure)
        .set_client_to_redis_certificates(certificates.clone());
    if let Some(user) = settings.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = settings.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    let settings = sentinels.first().map(ConnectionInfo::redis_settings);
    if let Some(user) = settings.and_then(|settings| settings.username()) {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = settings.and_then(|settings| settings.password()) {
        builder = builder.set_client_to_sentinel_password(password);
    }
    Ok(builder.build()?.try_into()?)
}
