//! The primary, as Sentinels know it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsMode};
use tokio::sync::Notify;

use super::certificates::Certificates;
use super::connection::{Connection, Purpose, Timeouts, connect_to};
use super::discovery::{Discovery, Source};
use super::server::Server;
use super::tcp::with_keepalive;

pub(super) struct Sentinel {
    requests: Discovery<Sentinels>,
    /// Separate, because a discovery that the application started makes progress only while its runtime runs. `None`
    /// when the application passed a client of its own, of which there is only one.
    renewals: Option<Discovery<Sentinels>>,
    /// For messages: the client does not expose its addresses.
    label: String,
}

/// Those that know the primary.
struct Sentinels(SentinelClient);

impl Sentinel {
    pub fn new(
        sentinels: &[ConnectionInfo],
        name: &str,
        primary: &ConnectionInfo,
        certificates: &Certificates,
    ) -> RedisResult<Self> {
        let sentinels = sentinels.iter().map(|info| certificates.apply(info.clone()));
        let sentinels: Vec<ConnectionInfo> = sentinels.collect::<RedisResult<_>>()?;
        let discovery = || {
            let builder = certificates.apply_to_primary(builder(&sentinels, name, primary)?);
            RedisResult::Ok(Discovery::new(Sentinels(builder.build()?)))
        };
        let hosts: Vec<String> = sentinels.iter().map(|info| info.addr().to_string()).collect();
        Ok(Self {
            requests: discovery()?,
            renewals: Some(discovery()?),
            label: format!("{name} known to Sentinel {}", hosts.join(",")),
        })
    }

    fn discovery(&self, purpose: Purpose) -> &Discovery<Sentinels> {
        match (purpose, &self.renewals) {
            (Purpose::Renewal, Some(discovery)) => discovery,
            _ => &self.requests,
        }
    }
}

impl From<SentinelClient> for Sentinel {
    fn from(client: SentinelClient) -> Self {
        Self {
            requests: Discovery::new(Sentinels(client)),
            renewals: None,
            label: "primary known to Sentinel".into(),
        }
    }
}

impl Source for Sentinels {
    type Answer = Client;

    async fn ask(&mut self) -> RedisResult<Client> {
        let found = self.0.async_get_client().await?;
        Client::open(with_keepalive(found.get_connection_info().clone()))
    }
}

impl Server for Sentinel {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn client_for<'a>(&'a self, _: &'a [u8], purpose: Purpose) -> BoxFuture<'a, RedisResult<Client>> {
        Box::pin(self.discovery(purpose).get())
    }

    fn connect(
        &self,
        timeouts: Timeouts,
        purpose: Purpose,
        disconnected: Arc<Notify>,
    ) -> BoxFuture<'_, RedisResult<Connection>> {
        Box::pin(async move {
            // The last connection is gone, and so may be the primary that it led to.
            let primary = self.discovery(purpose).refresh().await?;
            connect_to(primary, timeouts, purpose, disconnected).await
        })
    }

    fn forget(&self, node: &ConnectionAddr) {
        for discovery in std::iter::once(&self.requests).chain(&self.renewals) {
            discovery.forget_if(|primary| primary.get_connection_info().addr() == node);
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

#[cfg(test)]
mod tests {
    use crate::connect::Address;

    #[test]
    fn sentinel_address_takes_the_name_of_the_primary() {
        let address = Address::try_from("redis-sentinel://:secret@one:26379,two/main/3").unwrap();
        assert_eq!(address.to_string(), "main known to Sentinel one:26379,two:26379");
        assert!(Address::try_from("redis-sentinel://one/main/nonsense").is_err());
    }
}
