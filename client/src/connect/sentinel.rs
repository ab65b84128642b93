//! The primary, as Sentinels know it.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsMode};
use tokio::sync::Notify;

use super::address::{Address, Server, connect_to, with_keepalive};
use super::certificates::Certificates;
use super::connection::{Connection, Purpose, Timeouts};
use super::discovery::{Discovery, Source};
use super::endpoints::{Endpoints, parse, split_credentials};
use crate::error::Error;

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

/// The Sentinels, the name of the primary and its credentials in `[user:password@]host[:port],host[:port]/name[/db]`.
pub(super) fn endpoints(scheme: &str, text: &str) -> Result<Endpoints, Error> {
    let (credentials, rest) = split_credentials(text);
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, db) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err(Error::Invalid(
            "the address of Sentinels needs the name of the primary: redis-sentinel://host:26379/name".into(),
        ));
    }
    let sentinels = hosts.split(',').map(|host| {
        // Sentinels have a default port of their own.
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']'));
        let port = if has_port { "" } else { ":26379" };
        parse(&format!("{scheme}://{host}{port}"))
    });
    Ok(Endpoints::Sentinel {
        sentinels: sentinels.collect::<Result<_, _>>()?,
        name: name.to_owned(),
        // The host is a placeholder.
        primary: parse(&format!("{scheme}://{credentials}primary/{db}"))?,
    })
}

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

impl TryFrom<SentinelClient> for Address {
    type Error = Error;

    /// A client that the application configured.
    fn try_from(client: SentinelClient) -> Result<Self, Error> {
        Ok(Self(Arc::new(Sentinel {
            requests: Discovery::new(Sentinels(client)),
            renewals: None,
            label: "primary known to Sentinel".into(),
        })))
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
    use super::*;

    #[test]
    fn sentinel_address_without_port_uses_26379() {
        let endpoints = "redis-sentinel://:secret@one,two:7000,[::1]/main/3".parse();
        let Ok(Endpoints::Sentinel {
            sentinels,
            name,
            primary,
        }) = endpoints
        else {
            panic!("no Sentinels");
        };
        let addresses: Vec<String> = sentinels.iter().map(|info| info.addr().to_string()).collect();
        assert_eq!(addresses, ["one:26379", "two:7000", "::1:26379"]);
        assert_eq!(name, "main");
        assert_eq!(primary.redis_settings().password(), Some("secret"));
        assert_eq!(primary.redis_settings().db(), 3);
        assert_eq!(sentinels[0].redis_settings().password(), None);
    }

    #[test]
    fn sentinel_address_takes_the_name_of_the_primary() {
        let address = Address::try_from("redis-sentinel://:secret@one:26379,two/main/3").unwrap();
        assert_eq!(address.to_string(), "main known to Sentinel one:26379,two:26379");
        assert!(Address::try_from("redis-sentinel://one/main/nonsense").is_err());
    }
}
