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
                "{scheme}:// needs the feature `{feature}` of redis-dlock-client: add it to Cargo.toml"
            )))
        };
        if transport == "rediss" && cfg!(not(feature = "tls-rustls")) {
            return missing_feature("tls-rustls");
        }
        match kind {
            #[cfg(feature = "cluster")]
            "cluster" => super::cluster::endpoints(transport, text),
            #[cfg(feature = "sentinel")]
            "sentinel" => super::sentinel::endpoints(transport, text),
            kind if ["cluster", "sentinel"].contains(&kind) => missing_feature(kind),
            _ => parse(text).map(Self::Node),
        }
    }
}

/// Of an address without its scheme: `user:password@` or nothing, and the rest.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(super) fn split_credentials(text: &str) -> (&str, &str) {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    match rest.rfind('@') {
        Some(at) => rest.split_at(at + 1),
        None => ("", rest),
    }
}

pub(super) fn parse(url: &str) -> Result<ConnectionInfo, Error> {
    url.into_connection_info().map_err(invalid)
}

pub(super) fn invalid(error: RedisError) -> Error {
    Error::Invalid(format!("invalid address: {error}"))
}

#[cfg(all(test, not(feature = "tls-rustls")))]
mod tests {
    use super::*;

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
