//! The deployment that the command line names, and how to connect to its servers.

use std::env;
use std::fs;
use std::path::Path;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates, cmd,
};

use super::cluster::slot_ranges;
use super::node::Node;
use super::server_url::{ServerUrl, parse, parse_host, tcp_addr};
use crate::args::ServerArgs;
use crate::exit::{Code, Failure};

#[derive(Clone)]
pub struct Target {
    pub(super) url: ServerUrl,
    pub(super) login: RedisConnectionInfo,
    /// For the Sentinels.
    pub(super) sentinel_login: RedisConnectionInfo,
    pub(super) certificates: Option<TlsCertificates>,
}

/// A server of the deployment, which may be unreachable.
pub struct Discovered {
    pub name: String,
    pub node: Result<Node, Failure>,
}

impl Target {
    /// Reads the options, and the environment variables for options that are not given.
    pub fn new(args: &ServerArgs) -> Result<Self, Failure> {
        Self::from_args(args, |name| env::var(name).ok())
    }

    fn from_args(args: &ServerArgs, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let variable = |name| variable(name).filter(|value| !value.is_empty());
        let has_address = args.host.is_some() || args.port.is_some() || args.socket.is_some();
        let url = args
            .url
            .clone()
            .or_else(|| variable("DLOCK_URL").filter(|_| !has_address));
        let (mut url, mut login) = match url {
            Some(url) => parse(&url)?,
            None => (ServerUrl::Node(address(args)), RedisConnectionInfo::default()),
        };
        if args.tls {
            url = url.with_tls();
        }
        login = with_credentials(
            login,
            args.user.as_deref(),
            args.password.clone(),
            variable("REDISCLI_AUTH"),
        );
        if login.username().is_some() && login.password().is_none() {
            return Err(Failure::usage(
                "--user needs a password: set REDISCLI_AUTH, or pass it with -a or in the URL",
            ));
        }
        let sentinel_login = with_credentials(
            RedisConnectionInfo::default(),
            args.sentinel_user.as_deref(),
            args.sentinel_password.clone(),
            variable("DLOCK_SENTINEL_AUTH"),
        );
        if let Some(database) = args.database {
            login = login.set_db(database.into());
        }
        Ok(Self {
            url,
            login,
            sentinel_login,
            certificates: read_certificates(args)?,
        })
    }

    /// The server to start with: the current primary, or any node of a cluster.
    pub fn first(&self) -> Result<Node, Failure> {
        match &self.url {
            ServerUrl::Node(address) => self.connect(address.clone()),
            ServerUrl::Cluster { tls, hosts } => {
                let nodes = hosts
                    .iter()
                    .map(|host| self.connect(parse_host(host, 6379, *tls)?));
                first_success(nodes)
            }
            ServerUrl::Sentinels { tls, hosts, primary } => {
                let addresses = hosts.iter().map(|host| {
                    let sentinel = self.connect_sentinel(parse_host(host, 26379, *tls)?)?;
                    primary_address(sentinel, primary)
                });
                let (host, port) = first_success(addresses)?;
                self.connect(tcp_addr(host, port, *tls)).map_err(during_failover)
            }
        }
    }

    /// All servers that grant locks: one, or the primaries of a cluster. Fails if one is unreachable.
    pub fn primaries(&self) -> Result<Vec<Node>, Failure> {
        self.discover_primaries()?
            .into_iter()
            .map(|found| found.node)
            .collect()
    }

    /// As [`Target::primaries`], including unreachable ones of a cluster.
    pub fn discover_primaries(&self) -> Result<Vec<Discovered>, Failure> {
        let mut first = self.first()?;
        if !self.is_cluster(&mut first) {
            return Ok(vec![Discovered {
                name: first.name.clone(),
                node: Ok(first),
            }]);
        }
        let mut primaries: Vec<ConnectionAddr> = Vec::new();
        for range in slot_ranges(&mut first)? {
            let address = peer_address(&first, range.host, range.port);
            if !primaries.contains(&address) {
                primaries.push(address);
            }
        }
        if primaries.is_empty() {
            // The cluster has not been created yet. `dlock doctor` reports that.
            primaries.push(first.address.clone());
        }
        Ok(primaries
            .into_iter()
            .map(|address| self.discover(address))
            .collect())
    }

    /// The name of the primary if the URL names Sentinels.
    pub fn sentinel_primary(&self) -> Option<&str> {
        match &self.url {
            ServerUrl::Sentinels { primary, .. } => Some(primary),
            _ => None,
        }
    }

    /// The Sentinels of the URL, including unreachable ones.
    pub fn discover_sentinels(&self) -> Vec<Discovered> {
        let ServerUrl::Sentinels { tls, hosts, .. } = &self.url else {
            return Vec::new();
        };
        let discover = |host: &String| Discovered {
            name: host.clone(),
            node: parse_host(host, 26379, *tls).and_then(|address| self.connect_sentinel(address)),
        };
        hosts.iter().map(discover).collect()
    }

    pub fn has_password(&self) -> bool {
        self.login.password().is_some()
    }

    pub fn has_sentinel_password(&self) -> bool {
        self.sentinel_login.password().is_some()
    }

    /// A server at an address that `node` reported: another node of its cluster, or a replica.
    pub fn peer(&self, node: &Node, host: String, port: u16) -> Discovered {
        self.discover(peer_address(node, host, port))
    }

    /// The server that a lock belongs to.
    pub fn node_of(&self, lock: &[u8]) -> Result<Node, Failure> {
        let mut first = self.first()?;
        if !self.is_cluster(&mut first) {
            return Ok(first);
        }
        let slot = first.query(cmd("CLUSTER").arg("KEYSLOT").arg(lock))?;
        let ranges = slot_ranges(&mut first)?;
        let range = ranges.iter().find(|range| range.contains(slot)).ok_or_else(|| {
            let message = format!("no node of the cluster serves slot {slot} of this lock: see dlock doctor");
            Failure::new(Code::Unavailable, message)
        })?;
        self.connect(peer_address(&first, range.host.clone(), range.port))
    }

    /// Assumes that the server is no cluster node if the user has no permission for INFO.
    pub(super) fn is_cluster(&self, node: &mut Node) -> bool {
        matches!(self.url, ServerUrl::Cluster { .. })
            || node
                .info("cluster")
                .is_ok_and(|info| info.get("cluster_enabled") == "1")
    }

    fn discover(&self, address: ConnectionAddr) -> Discovered {
        Discovered {
            name: address.to_string(),
            node: self.connect(address),
        }
    }

    fn connect(&self, address: ConnectionAddr) -> Result<Node, Failure> {
        Node::connect(&self.client(address.clone(), &self.login)?, address)
    }

    fn connect_sentinel(&self, address: ConnectionAddr) -> Result<Node, Failure> {
        let name = address.to_string();
        let client = self.client(address.clone(), &self.sentinel_login)?;
        Node::connect(&client, address).map_err(|failure| match failure.code {
            Code::NotPermitted => Failure::new(
                failure.code,
                format!(
                    "Sentinel {name} requires another password: set DLOCK_SENTINEL_AUTH, or pass it with \
                     --sentinel-pass (and --sentinel-user)"
                ),
            ),
            _ => failure,
        })
    }

    pub(super) fn client(
        &self,
        address: ConnectionAddr,
        login: &RedisConnectionInfo,
    ) -> Result<Client, Failure> {
        let info = address.into_connection_info()?.set_redis_settings(login.clone());
        let client = match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        };
        client.map_err(|error| Failure::usage(format!("invalid server address: {error}")))
    }
}

fn with_credentials(
    login: RedisConnectionInfo,
    user: Option<&str>,
    password: Option<String>,
    default_password: Option<String>,
) -> RedisConnectionInfo {
    let login = match user {
        Some(user) => login.set_username(user),
        None => login,
    };
    let default_password = default_password.filter(|_| login.password().is_none());
    match password.or(default_password) {
        Some(password) => login.set_password(password),
        None => login,
    }
}

fn peer_address(node: &Node, host: String, port: u16) -> ConnectionAddr {
    let (own_host, tls) = match &node.address {
        ConnectionAddr::TcpTls { host, .. } => (host.as_str(), true),
        ConnectionAddr::Tcp(host, _) => (host.as_str(), false),
        _ => ("127.0.0.1", false),
    };
    // A node that does not know its own address reports an empty one.
    let host = if host.is_empty() {
        own_host.to_owned()
    } else {
        host
    };
    tcp_addr(host, port, tls)
}

fn address(args: &ServerArgs) -> ConnectionAddr {
    match &args.socket {
        Some(path) => ConnectionAddr::Unix(path.clone()),
        None => {
            let host = args.host.clone().unwrap_or_else(|| "127.0.0.1".to_owned());
            ConnectionAddr::Tcp(host, args.port.unwrap_or(6379))
        }
    }
}

fn primary_address(mut sentinel: Node, primary: &str) -> Result<(String, u16), Failure> {
    let command = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(primary).take();
    let address: Option<(String, u16)> = sentinel.query(&command)?;
    address.ok_or_else(|| {
        let message = format!(
            "Sentinel {} does not know a primary named {primary}",
            sentinel.name
        );
        Failure::new(Code::Unavailable, message)
    })
}

fn during_failover(failure: Failure) -> Failure {
    if failure.code != Code::Unavailable {
        return failure;
    }
    let message = format!(
        "{}. The Sentinels still report it as the primary: a failover may be in progress, try again",
        failure.message
    );
    Failure::new(failure.code, message)
}

/// The first success, or the last failure.
fn first_success<T>(attempts: impl Iterator<Item = Result<T, Failure>>) -> Result<T, Failure> {
    let mut last = Failure::usage("invalid server URL: it has no host");
    for attempt in attempts {
        match attempt {
            Ok(value) => return Ok(value),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

fn read_certificates(args: &ServerArgs) -> Result<Option<TlsCertificates>, Failure> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
    };
    let root_cert = args.cacert.as_deref().map(read).transpose()?;
    let client_tls = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig {
            client_cert: read(cert)?,
            client_key: read(key)?,
        }),
        _ => None,
    };
    let any = root_cert.is_some() || client_tls.is_some();
    Ok(any.then_some(TlsCertificates {
        client_tls,
        root_cert,
    }))
}

#[cfg(test)]
mod tests;
