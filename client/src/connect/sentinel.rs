//! The primary, as Sentinels know it.

use std::sync::Mutex;

use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsMode};

use super::address::{keepalive_settings, with_keepalive};
use super::certificates::Certificates;
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

    pub fn new(
        sentinels: &[ConnectionInfo],
        name: &str,
        primary: &ConnectionInfo,
        certificates: &Certificates,
    ) -> RedisResult<Self> {
        let sentinels: Vec<ConnectionInfo> = sentinels
            .iter()
            .map(|info| certificates.apply(info.clone()))
            .collect::<RedisResult<_>>()?;
        let client = || {
            certificates
                .apply_to_primary(builder(&sentinels, name, primary)?)
                .build()
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

fn builder(
    sentinels: &[ConnectionInfo],
    name: &str,
    primary: &ConnectionInfo,
) -> RedisResult<SentinelClientBuilder> {
    let addresses = sentinels.iter().map(|info| info.addr().clone());
    let settings = primary.redis_settings();
    let mut builder = SentinelClientBuilder::new(addresses, name, SentinelServerType::Master)?
        .set_client_to_redis_tcp_settings(keepalive_settings())
        .set_client_to_redis_db(settings.db())
        .set_client_to_redis_protocol(settings.protocol());
    if matches!(primary.addr(), ConnectionAddr::TcpTls { .. }) {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
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
    Ok(builder)
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
