//! The nodes of a cluster.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisResult};
use tokio::sync::Notify;

use super::certificates::Certificates;
use super::connection::{Connection, Purpose, Timeouts, on_disconnection};
use super::discovery::Discovery;
use super::endpoints::invalid;
use super::server::Server;
use super::slots::{Nodes, slot_of};
use super::tcp::{keepalive_settings, with_keepalive, with_zero_linger};
use crate::error::Error;

pub(super) struct Cluster {
    requests: ClusterClient,
    renewals: ClusterClient,
    /// For messages.
    first_seed: ConnectionAddr,
    /// For connections to one node only. Connections to the cluster have their own.
    slots: Discovery<Nodes>,
}

impl Cluster {
    pub fn new(nodes: Vec<ConnectionInfo>, certificates: &Certificates) -> Result<Self, Error> {
        let nodes = nodes
            .into_iter()
            .map(|node| certificates.apply(with_keepalive(node)));
        let nodes: Vec<ConnectionInfo> = nodes.collect::<Result<_, _>>().map_err(invalid)?;
        let Some(first) = nodes.first() else {
            let text = "the address of a cluster needs at least one node";
            return Err(Error::Invalid(text.into()));
        };
        let builder = |settings| {
            certificates.apply_to_cluster(ClusterClient::builder(nodes.clone()).tcp_settings(settings))
        };
        let requests = builder(with_zero_linger(keepalive_settings()));
        // RESP3 reports lost connections.
        let renewals = builder(keepalive_settings()).use_protocol(ProtocolVersion::RESP3);
        Ok(Self {
            requests: requests.build().map_err(invalid)?,
            renewals: renewals.build().map_err(invalid)?,
            first_seed: first.addr().clone(),
            slots: Discovery::new(Nodes::new(nodes)),
        })
    }
}

impl Server for Cluster {
    fn label(&self) -> String {
        format!("cluster of {}", self.first_seed)
    }

    fn client_for<'a>(&'a self, key: &'a [u8], _: Purpose) -> BoxFuture<'a, RedisResult<Client>> {
        Box::pin(async move {
            let Some(node) = self.slots.get().await?.node_for(slot_of(key)) else {
                self.slots.forget_if(|_| true);
                let text = "no node of the cluster serves the key's slot";
                return Err((ErrorKind::ClusterConnectionNotFound, text).into());
            };
            Client::open(node)
        })
    }

    fn connect(
        &self,
        timeouts: Timeouts,
        purpose: Purpose,
        disconnected: Arc<Notify>,
    ) -> BoxFuture<'_, RedisResult<Connection>> {
        Box::pin(async move {
            let config = ClusterConfig::new()
                .set_connection_timeout(timeouts.connect)
                .set_response_timeout(timeouts.response);
            let (client, config) = match purpose {
                Purpose::Requests => (&self.requests, config),
                Purpose::Renewal => (
                    &self.renewals,
                    config.set_push_sender(on_disconnection(disconnected)),
                ),
            };
            let connecting = client.get_async_connection_with_config(config);
            connecting.await.map(Connection::Cluster)
        })
    }

    fn primaries(&self) -> BoxFuture<'_, Result<Vec<Client>, Error>> {
        Box::pin(async {
            let primaries = self.slots.refresh().await?.primaries();
            let clients: RedisResult<_> = primaries.into_iter().map(Client::open).collect();
            Ok(clients?)
        })
    }

    fn node_for<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Client, Error>> {
        Box::pin(async move {
            let slot = slot_of(key);
            let node = self.slots.refresh().await?.node_for(slot).ok_or_else(|| {
                Error::Invalid(format!(
                    "no node of the cluster serves slot {slot}, to which this key belongs: assign all slots"
                ))
            })?;
            Ok(Client::open(node)?)
        })
    }

    fn forget(&self, _: &ConnectionAddr) {
        self.slots.forget_if(|_| true);
    }

    fn is_cluster(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::connect::Address;

    #[test]
    fn cluster_address_takes_several_nodes() {
        let address: Address = "redis-cluster://:secret@one:7000,two:7001/".parse().unwrap();
        assert_eq!(format!("{address:?}"), "Address(cluster of one:7000)");
    }
}
