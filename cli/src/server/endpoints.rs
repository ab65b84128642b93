//! Addresses as text: which servers they name, before anything is connected.

use std::str::FromStr;

use redis::{ConnectionInfo, IntoConnectionInfo};

/// The servers that an address names. Credentials, a database and certificates from other options are added later.
#[derive(Clone)]
pub enum Endpoints {
    /// One server.
    Node(ConnectionInfo),
    /// Nodes of a cluster. They differ in host and port only.
    Cluster(Vec<ConnectionInfo>),
    /// Sentinels that know the primary.
    Sentinel {
        /// They differ in host and port only.
        sentinels: Vec<ConnectionInfo>,
        /// The name that they know the primary by.
        name: String,
        /// Credentials, database and TLS of the primary. Host and port come from the Sentinels.
        primary: ConnectionInfo,
    },
}

impl FromStr for Endpoints {
    /// What is wrong.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        let (transport, kind) = scheme.split_once('-').unwrap_or((scheme, ""));
        match kind {
            "cluster" => parse_cluster(transport, text),
            "sentinel" => parse_sentinel(transport, text),
            _ => parse(text).map(Self::Node),
        }
    }
}

/// The nodes in `[user:password@]host[:port],host[:port]`.
fn parse_cluster(scheme: &str, text: &str) -> Result<Endpoints, String> {
    let (credentials, hosts) = split_credentials(text);
    let hosts = hosts.trim_end_matches('/').split(',');
    let nodes = hosts.map(|host| parse(&format!("{scheme}://{credentials}{host}")));
    nodes.collect::<Result<_, _>>().map(Endpoints::Cluster)
}

/// The Sentinels, the name of the primary and its credentials in `[user:password@]host[:port],host[:port]/name[/db]`.
fn parse_sentinel(scheme: &str, text: &str) -> Result<Endpoints, String> {
    let (credentials, rest) = split_credentials(text);
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (name, db) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err("the name of the primary is missing".into());
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
fn split_credentials(text: &str) -> (&str, &str) {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    match rest.rfind('@') {
        Some(at) => rest.split_at(at + 1),
        None => ("", rest),
    }
}

fn parse(url: &str) -> Result<ConnectionInfo, String> {
    url.into_connection_info().map_err(|error| error.to_string())
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
}
