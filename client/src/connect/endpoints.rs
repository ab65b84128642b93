//! Addresses as text: which servers they name, before anything is connected.

use std::str::FromStr;

use redis::{ConnectionInfo, IntoConnectionInfo, RedisError};

use crate::error::Error;

/// The servers that an address names. Parse one from text, change what the text cannot say (credentials, a database,
/// certificates), and turn it into an [`Address`](crate::Address).
///
/// ```
/// use redis_dlock_client::{Address, Endpoints};
///
/// # fn main() -> Result<(), redis_dlock_client::Error> {
/// let mut endpoints: Endpoints = "redis://example.com/".parse()?;
/// if let Endpoints::Node(info) = &mut endpoints {
///     let settings = info.redis_settings().clone().set_password("secret");
///     *info = info.clone().set_redis_settings(settings);
/// }
/// let address = Address::try_from(endpoints)?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Endpoints {
    /// One server.
    Node(ConnectionInfo),
    /// Nodes of a cluster. They differ in host and port only.
    Cluster(Vec<ConnectionInfo>),
    /// Sentinels that know the primary.
    #[non_exhaustive]
    Sentinel {
        /// The Sentinels. They differ in host and port only.
        sentinels: Vec<ConnectionInfo>,
        /// The name that the Sentinels know the primary by.
        name: String,
        /// How to connect to the primary: credentials, database, TLS. Host and port come from the Sentinels.
        primary: ConnectionInfo,
    },
}

impl FromStr for Endpoints {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        if scheme.starts_with("rediss") && cfg!(not(feature = "tls-rustls")) {
            return Err(missing_feature("TLS", "tls-rustls"));
        }
        match scheme {
            "redis-cluster" => cluster("redis", rest),
            "rediss-cluster" => cluster("rediss", rest),
            "redis-sentinel" => sentinel("redis", rest),
            "rediss-sentinel" => sentinel("rediss", rest),
            _ => parse(text).map(Self::Node),
        }
    }
}

fn cluster(scheme: &str, rest: &str) -> Result<Endpoints, Error> {
    let (credentials, hosts) = split_credentials(rest);
    let hosts = hosts.trim_end_matches('/').split(',');
    let nodes = hosts.map(|host| parse(&format!("{scheme}://{credentials}{host}")));
    nodes.collect::<Result<_, _>>().map(Endpoints::Cluster)
}

fn sentinel(scheme: &str, rest: &str) -> Result<Endpoints, Error> {
    let (credentials, rest) = split_credentials(rest);
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

/// `user:password@` or nothing, and the rest.
fn split_credentials(rest: &str) -> (&str, &str) {
    match rest.rfind('@') {
        Some(at) => rest.split_at(at + 1),
        None => ("", rest),
    }
}

fn parse(url: &str) -> Result<ConnectionInfo, Error> {
    url.into_connection_info().map_err(invalid)
}

pub(super) fn invalid(error: RedisError) -> Error {
    Error::Invalid(format!("invalid address: {error}"))
}

/// An address whose kind this build does not support.
pub(super) fn missing_feature(kind: &str, feature: &str) -> Error {
    Error::Invalid(format!(
        "{kind} needs the feature `{feature}` of redis-dlock-client: add it to Cargo.toml"
    ))
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

    #[cfg(not(feature = "tls-rustls"))]
    #[test]
    fn tls_address_without_the_feature_names_it() {
        for text in [
            "rediss://one",
            "rediss-cluster://one",
            "rediss-sentinel://one/main",
        ] {
            let Err(Error::Invalid(why)) = text.parse::<Endpoints>() else {
                panic!("{text} was accepted");
            };
            assert!(why.contains("`tls-rustls`"), "{why}");
        }
    }
}
