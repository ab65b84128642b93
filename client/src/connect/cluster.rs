//! The nodes of a cluster.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisError, RedisResult};
use tokio::sync::Notify;

use super::address::{Server, keepalive_settings, on_disconnection, with_keepalive, with_zero_linger};
use super::certificates::Certificates;
use super::connection::{Connection, Purpose, Timeouts};
use super::endpoints::{Endpoints, invalid, parse, split_credentials};
use super::slots::SlotCache;
use crate::error::Error;

pub(super) struct Cluster {
    requests: ClusterClient,
    renewals: ClusterClient,
    slots: SlotCache,
}

/// The nodes in `[user:password@]host[:port],host[:port]`.
pub(super) fn endpoints(scheme: &str, text: &str) -> Result<Endpoints, Error> {
    let (credentials, hosts) = split_credentials(text);
    let hosts = hosts.trim_end_matches('/').split(',');
    let nodes = hosts.map(|host| parse(&format!("{scheme}://{credentials}{host}")));
    nodes.collect::<Result<_, _>>().map(Endpoints::Cluster)
}

impl Cluster {
    pub fn new(nodes: Vec<ConnectionInfo>, certificates: &Certificates) -> Result<Self, Error> {
        let nodes = nodes
            .into_iter()
            .map(|node| certificates.apply(with_keepalive(node)));
        let nodes: Vec<ConnectionInfo> = nodes.collect::<Result<_, _>>().map_err(invalid)?;
        let builder = |settings| {
            certificates.apply_to_cluster(ClusterClient::builder(nodes.clone()).tcp_settings(settings))
        };
        let requests = builder(with_zero_linger(keepalive_settings()));
        // RESP3 reports lost connections.
        let renewals = builder(keepalive_settings()).use_protocol(ProtocolVersion::RESP3);
        Ok(Self {
            requests: requests.build().map_err(invalid)?,
            renewals: renewals.build().map_err(invalid)?,
            slots: SlotCache::new(nodes)?,
        })
    }
}

impl Server for Cluster {
    fn label(&self) -> String {
        format!("cluster of {}", self.slots.first_seed().addr())
    }

    fn client_for<'a>(&'a self, key: &'a [u8], _: Purpose) -> BoxFuture<'a, RedisResult<Client>> {
        Box::pin(async { Client::open(self.slots.node_for(key)) })
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
            let clients = self
                .slots
                .fetch()
                .await?
                .primaries()
                .into_iter()
                .map(Client::open);
            Ok(clients.collect::<RedisResult<_>>()?)
        })
    }

    fn node_for<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Client, Error>> {
        Box::pin(async { Ok(Client::open(self.slots.fetch().await?.node_for(key)?)?) })
    }

    fn forget(&self, node: &ConnectionAddr) {
        self.slots.forget(node);
    }

    fn on_redirect(&self, error: &RedisError, node: &ConnectionAddr) {
        self.slots.on_redirect(error, node);
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
