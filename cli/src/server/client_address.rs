//! The address of a [`Target`] for the client library.

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
            let cluster = cluster_of(&first)?;
            if block_on(cluster.primaries())?.is_empty() {
                return unavailable(
                    "is a node of a cluster that serves no slots yet: create the cluster with redis-cli --cluster create",
                );
            }
            return match self.endpoints.clone() {
                Endpoints::Node(info) => self.address_of(Endpoints::Cluster(vec![info])),
                endpoints => self.address_of(endpoints),
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
        self.address_of(self.endpoints.clone())
    }

    /// Of a server of a quorum, which may be unreachable.
    pub fn address(&self) -> Result<Address, Failure> {
        self.address_of(self.endpoints.clone())
    }

    fn address_of(&self, endpoints: Endpoints) -> Result<Address, Failure> {
        Ok(match self.certificates.clone() {
            Some(certificates) => Address::with_certificates(endpoints, certificates)?,
            None => endpoints.try_into()?,
        })
    }
}
