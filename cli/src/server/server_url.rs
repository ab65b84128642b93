//! Parses server URLs.

use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo};

use crate::exit::Failure;

const FORMS: &str = "use redis://host:port, rediss://host:port, unix:///path, redis-sentinel://host:port,host:port/name or \
                     redis-cluster://host:port,host:port, with / @ and % in passwords written as %2F, %40 and %25";

/// A server, or the nodes to ask for it.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerUrl {
    Node(ConnectionAddr),
    Cluster {
        tls: bool,
        hosts: Vec<String>,
    },
    Sentinels {
        tls: bool,
        hosts: Vec<String>,
        primary: String,
    },
}

impl ServerUrl {
    pub fn with_tls(self) -> Self {
        match self {
            Self::Node(ConnectionAddr::Tcp(host, port)) => Self::Node(tcp_addr(host, port, true)),
            Self::Cluster { hosts, .. } => Self::Cluster { tls: true, hosts },
            Self::Sentinels { hosts, primary, .. } => Self::Sentinels {
                tls: true,
                hosts,
                primary,
            },
            other => other,
        }
    }
}

/// Parses a URL in the format of redis-cli and the client library.
pub fn parse(url: &str) -> Result<(ServerUrl, RedisConnectionInfo), Failure> {
    let invalid = |reason: String| Failure::usage(format!("invalid server URL: {reason}"));
    let unparsable = |error| invalid(format!("{error}: {FORMS}"));
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (transport, kind) = scheme.split_once('-').unwrap_or((scheme, ""));
    let tls = transport == "rediss";
    if !matches!(kind, "cluster" | "sentinel") {
        let info: ConnectionInfo = url.parse().map_err(unparsable)?;
        return Ok((
            ServerUrl::Node(info.addr().clone()),
            info.redis_settings().clone(),
        ));
    }
    let (credentials, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
    if hosts.iter().any(String::is_empty) || !matches!(transport, "redis" | "rediss") {
        return Err(invalid(FORMS.to_owned()));
    }
    let (primary, database) = path.split_once('/').unwrap_or((path, ""));
    // Only the user name, password and database are used.
    let login: ConnectionInfo = format!("redis://{credentials}@primary/{database}")
        .parse()
        .map_err(unparsable)?;
    let server_url = match (kind, primary) {
        ("cluster", _) => ServerUrl::Cluster { tls, hosts },
        (_, "") => {
            return Err(invalid(
                "the name of the primary is missing: use redis-sentinel://host:26379/name".into(),
            ));
        }
        (_, primary) => ServerUrl::Sentinels {
            tls,
            hosts,
            primary: primary.to_owned(),
        },
    };
    Ok((server_url, login.redis_settings().clone()))
}

/// Parses `host`, `host:port` or `[address]:port`.
pub fn parse_host(host: &str, default_port: u16, tls: bool) -> Result<ConnectionAddr, Failure> {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            let port = port
                .parse()
                .map_err(|_| Failure::usage(format!("invalid server URL: {host}: invalid port {port}")))?;
            (name, port)
        }
        _ => (host, default_port),
    };
    Ok(tcp_addr(name.trim_matches(['[', ']']).to_owned(), port, tls))
}

pub fn tcp_addr(host: String, port: u16, tls: bool) -> ConnectionAddr {
    if tls {
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

/// `host:port` or `[address]:port`, and whether it uses TLS.
pub fn host_and_tls(address: &ConnectionAddr) -> Result<(String, bool), Failure> {
    let format = |host: &str, port| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    match address {
        ConnectionAddr::Tcp(host, port) => Ok((format(host, port), false)),
        ConnectionAddr::TcpTls { host, port, .. } => Ok((format(host, port), true)),
        _ => Err(Failure::usage(
            "a cluster needs host and port instead of a Unix socket",
        )),
    }
}

/// Encodes text for use in any part of a URL.
pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}
