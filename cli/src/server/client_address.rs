//! The address of a [`Target`] in the form that the client library takes.

use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{ConnectionAddr, TlsMode};
use redis_dlock_client::Address;

use super::cluster::slot_ranges;
use super::server_url::{ServerUrl, host_and_tls, parse_host, percent_encode};
use super::target::Target;
use crate::exit::{Code, Failure};

impl Target {
    /// Connects once, so that an unreachable server, a wrong password or a replica is reported at once.
    pub fn client_address(&self) -> Result<Address, Failure> {
        let mut first = self.first()?;
        let name = first.name.clone();
        let unavailable = |reason: &str| {
            let message = format!("{name} {reason}");
            Err(Failure::new(Code::Unavailable, message))
        };
        let is_cluster = self.is_cluster(&mut first);
        let is_replica = !is_cluster
            && first
                .info("replication")
                .is_ok_and(|info| info.get("role") == "slave");
        if is_replica {
            return unavailable(
                "is a replica and cannot grant locks: connect to the primary or the Sentinels",
            );
        }
        if is_cluster && slot_ranges(&mut first)?.is_empty() {
            return unavailable(
                "is a node of a cluster that serves no slots yet: create the cluster with redis-cli --cluster create",
            );
        }
        let address = match &self.url {
            ServerUrl::Node(_) if !is_cluster => self.client(first.address, &self.login)?.try_into(),
            ServerUrl::Sentinels { tls, hosts, primary } => {
                if self.certificates.is_some() || self.sentinel_login.password().is_some() {
                    return self.sentinel_client(*tls, hosts, primary);
                }
                let path = format!("/{primary}/{}", self.login.db());
                self.client_url("sentinel", *tls, hosts, &path)?.parse()
            }
            ServerUrl::Node(address) => {
                let (host, tls) = host_and_tls(address)?;
                self.client_url("cluster", tls, &[host], "")?.parse()
            }
            ServerUrl::Cluster { tls, hosts } => self.client_url("cluster", *tls, hosts, "")?.parse(),
        };
        Ok(address?)
    }

    /// For what a URL cannot express: certificates, and credentials of the Sentinels.
    fn sentinel_client(&self, tls: bool, hosts: &[String], primary: &str) -> Result<Address, Failure> {
        let sentinels: Vec<ConnectionAddr> = hosts
            .iter()
            .map(|host| parse_host(host, 26379, tls))
            .collect::<Result<_, _>>()?;
        let mut builder = SentinelClientBuilder::new(sentinels, primary, SentinelServerType::Master)?
            .set_client_to_redis_db(self.login.db());
        if tls {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = &self.certificates {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates.clone());
        }
        if let Some(user) = self.login.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = self.login.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(user) = self.sentinel_login.username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = self.sentinel_login.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
        Ok(builder.build()?.try_into()?)
    }

    pub(super) fn client_url(
        &self,
        kind: &str,
        tls: bool,
        hosts: &[String],
        path: &str,
    ) -> Result<String, Failure> {
        if self.certificates.is_some() {
            return Err(Failure::usage(
                "dlock run cannot use --cacert and --cert with a cluster: set SSL_CERT_FILE to the CA \
                 certificate instead",
            ));
        }
        let scheme = if tls { "rediss" } else { "redis" };
        let mut credentials = String::new();
        if let Some(password) = self.login.password() {
            let user = self.login.username().unwrap_or_default();
            credentials = format!("{}:{}@", percent_encode(user), percent_encode(password));
        }
        Ok(format!(
            "{scheme}-{kind}://{credentials}{}{path}",
            hosts.join(",")
        ))
    }
}
