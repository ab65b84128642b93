//! Addresses as text: which servers they name, before anything is connected.

use std::str::FromStr;

use redis::{ConnectionInfo, IntoConnectionInfo, RedisError};

use crate::error::Error;

/// The servers that an address names. Parse one from text, change what the text cannot say (credentials, a database,
/// certificates), and turn it into an [`Address`](crate::Address).
///
/// ```
/// use redis_dlock_quorum::{Address, Endpoints};
///
/// # fn main() -> Result<(), redis_dlock_quorum::Error> {
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
    #[cfg(feature = "cluster")]
    Cluster(Vec<ConnectionInfo>),
    /// Sentinels that know the primary.
    #[cfg(feature = "sentinel")]
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
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let (transport, kind) = scheme.split_once('-').unwrap_or((scheme, ""));
        let missing_feature = |feature| {
            Err(Error::Invalid(format!(
                "{scheme}:// needs the feature `{feature}` of redis-dlock-quorum: add it to Cargo.toml"
            )))
        };
        if transport == "rediss" && cfg!(not(feature = "tls-rustls")) {
            return missing_feature("tls-rustls");
        }
        match kind {
            #[cfg(feature = "cluster")]
            "cluster" => parse_cluster(transport, text),
            #[cfg(feature = "sentinel")]
            "sentinel" => parse_sentinel(transport, text),
            kind if ["cluster", "sentinel"].contains(&kind) => missing_feature(kind),
            _ => parse(text).map(Self::Node),
        }
    }
}

/// The nodes in `[user:password@]host[:port],host[:port]`.
#[cfg(feature = "cluster")]
fn parse_cluster(scheme: &str, text: &str) -> Result<Endpoints, Error> {
    let (credentials, hosts) = split_credentials(text);
    let hosts = hosts.trim_end_matches('/').split(',');
    let nodes = hosts.map(|host| parse(&format!("{scheme}://{credentials}{host}")));
    nodes.collect::<Result<_, _>>().map(Endpoints::Cluster)
}

/// The Sentinels, the name of the primary and its credentials in `[user:password@]host[:port],host[:port]/name[/db]`.
#[cfg(feature = "sentinel")]
fn parse_sentinel(scheme: &str, text: &str) -> Result<Endpoints, Error> {
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

/// Of an address without its scheme: `user:password@` or nothing, and the rest.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn split_credentials(text: &str) -> (&str, &str) {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
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

#[cfg(all(test, any(feature = "sentinel", not(feature = "tls-rustls"))))]
mod tests {
    use super::*;

    #[cfg(feature = "sentinel")]
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
