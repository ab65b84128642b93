//! The servers of a [`Target`] for the client libraries.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisResult, TlsCertificates, TlsMode};
use redis_dlock_client::Server;

use super::endpoints::Endpoints;
use super::slots::SlotMap;
use super::target::Target;
use crate::exit::{Code, Failure};

/// Where the client library finds locks, and what the server says of itself.
pub struct LockServer {
    pub server: Server,
    pub is_cluster: bool,
    /// The longest lease that it accepts, if the user has permission for INFO.
    pub max_lease: Option<Duration>,
}

impl Target {
    /// Connects once, so that an unreachable server, a wrong password or a replica is reported at once.
    pub fn lock_server(&self) -> Result<LockServer, Failure> {
        let mut first = self.first()?;
        let name = first.name.clone();
        let unavailable = |reason: &str| Err(Failure::new(Code::Unavailable, format!("{name} {reason}")));
        // Assumes that it is a primary, and no node of a cluster, if the user has no permission for INFO.
        let info = first
            .info(&["cluster", "replication", "dlock"])
            .unwrap_or_default();
        let is_cluster = self.names_cluster() || info.get("cluster_enabled") == "1";
        let endpoints = match &self.endpoints {
            Endpoints::Node(info) if is_cluster => &Endpoints::Cluster(vec![info.clone()]),
            endpoints => endpoints,
        };
        if is_cluster {
            if SlotMap::read(&mut first)?.primaries().is_empty() {
                return unavailable(
                    "is a node of a cluster that serves no slots yet: create the cluster with redis-cli --cluster create",
                );
            }
        } else if info.get("role") == "slave" {
            return unavailable(
                "is a replica and cannot grant locks: connect to the primary or the Sentinels",
            );
        }
        Ok(LockServer {
            server: self.server_of(endpoints)?,
            is_cluster,
            max_lease: info.number("dlock_max_lease_ms").map(Duration::from_millis),
        })
    }

    fn server_of(&self, endpoints: &Endpoints) -> Result<Server, Failure> {
        let certificates = self.certificates.as_ref();
        Ok(match endpoints {
            Endpoints::Node(info) => Client::open(info.clone())?.into(),
            Endpoints::Cluster(nodes) => cluster_client(nodes, certificates)?.into(),
            Endpoints::Sentinel {
                sentinels,
                name,
                primary,
            } => sentinel_client(sentinels, name, primary, certificates)?.into(),
        })
    }

    /// One server of a quorum, which may be unreachable.
    pub fn quorum_server(&self) -> Result<Server, Failure> {
        let Endpoints::Node(info) = &self.endpoints else {
            return Err(Failure::usage(
                "each URL of a quorum must name one server: clusters and Sentinels cannot be members of a quorum",
            ));
        };
        Ok(Client::open(info.clone())?.into())
    }
}

fn cluster_client(
    nodes: &[ConnectionInfo],
    certificates: Option<&TlsCertificates>,
) -> RedisResult<ClusterClient> {
    // RESP3 connections tell of their loss.
    let mut builder = ClusterClient::builder(nodes.to_vec()).use_protocol(ProtocolVersion::RESP3);
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates.clone());
    }
    builder.build()
}

fn sentinel_client(
    sentinels: &[ConnectionInfo],
    name: &str,
    primary: &ConnectionInfo,
    certificates: Option<&TlsCertificates>,
) -> RedisResult<SentinelClient> {
    let addresses = sentinels.iter().map(|info| info.addr().clone());
    let settings = primary.redis_settings();
    let mut builder = SentinelClientBuilder::new(addresses, name, SentinelServerType::Master)?
        .set_client_to_redis_db(settings.db());
    if matches!(primary.addr(), ConnectionAddr::TcpTls { .. }) {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
    }
    // Those for the Sentinels are in their addresses.
    if let Some(certificates) = certificates {
        builder = builder.set_client_to_redis_certificates(certificates.clone());
    }
    if let Some(user) = settings.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = settings.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    let sentinel = sentinels.first().map(ConnectionInfo::redis_settings);
    if let Some(user) = sentinel.and_then(|settings| settings.username()) {
        builder = builder.set_client_to_sentinel_username(user);
    }
    if let Some(password) = sentinel.and_then(|settings| settings.password()) {
        builder = builder.set_client_to_sentinel_password(password);
    }
    builder.build()
}
