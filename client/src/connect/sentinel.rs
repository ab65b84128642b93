//! The primary, as Sentinels know it.

use std::sync::Mutex;

use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsMode};

use super::address::{keepalive_settings, with_keepalive};
use super::connection::Purpose;
use crate::sync::lock;

pub(super) struct Sentinel {
    requests: Discovery,
    /// Separate, because a discovery that the application started makes progress only while its runtime runs. `None`
    /// when the application passed a client of its own, of which there is only one.
    renewals: Option<Discovery>,
    /// For messages: the client does not expose its addresses.
    label: String,
}

/// Asks the Sentinels for the primary, and remembers the answer.
pub(super) struct Discovery {
    client: tokio::sync::Mutex<SentinelClient>,
    /// Asking takes several connections, and a long time when one of the Sentinels does not respond.
    primary: Mutex<Option<Client>>,
}

impl Sentinel {
    /// A client that the application configured.
    pub fn shared(client: SentinelClient) -> Self {
        Self {
            requests: Discovery::new(client),
            renewals: None,
            label: "primary known to Sentinel".into(),
        }
    }

    pub fn new(sentinels: &[ConnectionInfo], name: &str, primary: &ConnectionInfo) -> RedisResult<Self> {
        let mut node = SentinelNodeConnectionInfo::default()
            .set_redis_connection_info(primary.redis_settings().clone())
            .set_tcp_settings(keepalive_settings());
        if matches!(primary.addr(), ConnectionAddr::TcpTls { .. }) {
            node = node.set_tls_mode(TlsMode::Secure);
        }
        let client = || {
            let (sentinels, role) = (sentinels.to_vec(), SentinelServerType::Master);
            SentinelClient::build(sentinels, String::from(name), Some(node.clone()), role)
        };
        let hosts: Vec<String> = sentinels.iter().map(|info| info.addr().to_string()).collect();
        Ok(Self {
            requests: Discovery::new(client()?),
            renewals: Some(Discovery::new(client()?)),
            label: format!("{name} known to Sentinel {}", hosts.join(",")),
        })
    }

    pub fn label(&self) -> &str {
        &self.label
    }

    pub fn discovery(&self, purpose: Purpose) -> &Discovery {
        match (purpose, &self.renewals) {
            (Purpose::Renewal, Some(discovery)) => discovery,
            _ => &self.requests,
        }
    }

    pub fn forget(&self, node: &ConnectionAddr) {
        for discovery in std::iter::once(&self.requests).chain(&self.renewals) {
            lock(&discovery.primary).take_if(|primary| primary.get_connection_info().addr() == node);
        }
    }
}

impl Discovery {
    fn new(client: SentinelClient) -> Self {
        Self {
            client: tokio::sync::Mutex::new(client),
            primary: Mutex::default(),
        }
    }

    /// One task asks; those that arrive meanwhile share its answer.
    pub async fn primary(&self) -> RedisResult<Client> {
        if let Some(primary) = self.cached() {
            return Ok(primary);
        }
        let mut client = self.client.lock().await;
        if let Some(primary) = self.cached() {
            return Ok(primary);
        }
        let found = client.async_get_client().await?;
        let primary = Client::open(with_keepalive(found.get_connection_info().clone()))?;
        *lock(&self.primary) = Some(primary.clone());
        Ok(primary)
    }

    pub fn forget_primary(&self) {
        *lock(&self.primary) = None;
    }

    fn cached(&self) -> Option<Client> {
        lock(&self.primary).clone()
    }
}
