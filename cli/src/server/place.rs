//! Places of servers, as a URL names them.

use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo};

use crate::exit::Failure;

/// One server, or how to find the one that counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
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

impl Place {
    pub fn with_tls(self) -> Self {
        match self {
            Self::Node(ConnectionAddr::Tcp(host, port)) => Self::Node(tcp_address(host, port, true)),
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

/// A URL, as redis-cli and the client library take it.
pub fn parse(url: &str) -> Result<(Place, RedisConnectionInfo), Failure> {
    let invalid = |why: String| Failure::usage(format!("the URL of the server cannot be used: {why}"));
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (transport, kind) = scheme.split_once('-').unwrap_or((scheme, ""));
    let tls = transport == "rediss";
    if !matches!(kind, "cluster" | "sentinel") {
        let info: ConnectionInfo = url.parse().map_err(|error| invalid(format!("{error}")))?;
        return Ok((Place::Node(info.addr().clone()), info.redis_settings().clone()));
    }
    let (credentials, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts: Vec<String> = hosts.split(',').map(str::to_owned).collect();
    if hosts.iter().any(String::is_empty) || !matches!(transport, "redis" | "rediss") {
        return Err(invalid(
            "it is like redis-cluster://host:port,host:port".to_owned(),
        ));
    }
    let (primary, database) = path.split_once('/').unwrap_or((path, ""));
    // Only for the user, the password and the database in it.
    let login: ConnectionInfo = format!("redis://{credentials}@primary/{database}")
        .parse()
        .map_err(|error| invalid(format!("{error}")))?;
    let place = match (kind, primary) {
        ("cluster", _) => Place::Cluster { tls, hosts },
        (_, "") => {
            return Err(invalid(
                "the name of the primary is missing: redis-sentinel://host:26379/name".into(),
            ));
        }
        (_, primary) => Place::Sentinels {
            tls,
            hosts,
            primary: primary.to_owned(),
        },
    };
    Ok((place, login.redis_settings().clone()))
}

/// `host`, `host:port`, `[address]:port`
pub fn tcp(host: &str, default_port: u16, tls: bool) -> Result<ConnectionAddr, Failure> {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            let port = port
                .parse()
                .map_err(|_| Failure::usage(format!("{host}: {port} is no port")))?;
            (name, port)
        }
        _ => (host, default_port),
    };
    Ok(tcp_address(name.trim_matches(['[', ']']).to_owned(), port, tls))
}

pub fn tcp_address(host: String, port: u16, tls: bool) -> ConnectionAddr {
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

/// `host:port`, `[address]:port`, and whether it is reached with TLS.
pub fn host_of(address: &ConnectionAddr) -> Result<(String, bool), Failure> {
    let written = |host: &str, port| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    match address {
        ConnectionAddr::Tcp(host, port) => Ok((written(host, port), false)),
        ConnectionAddr::TcpTls { host, port, .. } => Ok((written(host, port), true)),
        _ => Err(Failure::usage(
            "a cluster is reached by host and port, not by a socket",
        )),
    }
}

/// Safe anywhere in a URL.
pub fn percent_encoded(text: &str) -> String {
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
