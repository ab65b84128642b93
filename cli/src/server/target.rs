//! The deployment that the command line names, and how to connect to its servers.

use redis::{ConnectionInfo, TlsCertificates, cmd};

use super::endpoints::Endpoints;
use super::node::{Fields, Node, at};
use super::slots::SlotMap;
use crate::exit::{Code, Failure};

#[derive(Clone)]
pub struct Target {
    pub(super) endpoints: Endpoints,
    pub(super) certificates: Option<TlsCertificates>,
}

/// A server of the deployment, which may be unreachable.
pub struct Discovered {
    pub name: String,
    pub node: Result<Node, Failure>,
}

impl Target {
    /// The server to start with: the current primary, or any node of a cluster.
    pub fn first(&self) -> Result<Node, Failure> {
        match &self.endpoints {
            Endpoints::Cluster(nodes) => first_success(nodes.iter().map(Node::connect)),
            Endpoints::Sentinel {
                sentinels,
                name,
                primary,
            } => {
                let addresses = sentinels
                    .iter()
                    .map(|sentinel| primary_address(connect_sentinel(sentinel)?, name));
                let (host, port) = first_success(addresses)?;
                Node::connect(&at(primary, Some(host), port)).map_err(during_failover)
            }
            Endpoints::Node(info) => Node::connect(info),
        }
    }

    /// All servers that grant locks: one, or the primaries of a cluster, including unreachable ones.
    pub fn discover_primaries(&self) -> Result<Vec<Discovered>, Failure> {
        let mut first = self.first()?;
        let mut primaries = Vec::new();
        if self.is_cluster(&mut first) {
            primaries = SlotMap::read(&mut first)?.primaries();
        }
        if primaries.is_empty() {
            // Not a cluster, or one that has not been created yet. `dlock doctor` reports the latter.
            return Ok(vec![Discovered {
                name: first.name.clone(),
                node: Ok(first),
            }]);
        }
        Ok(primaries.iter().map(Discovered::connect).collect())
    }

    /// The reachable primaries, and why others are unreachable. Fails if none is reachable.
    pub fn reachable_primaries(&self) -> Result<(Vec<Node>, Vec<Failure>), Failure> {
        let (mut nodes, mut failures) = (Vec::new(), Vec::new());
        for found in self.discover_primaries()? {
            match found.node {
                Ok(node) => nodes.push(node),
                Err(failure) => failures.push(failure),
            }
        }
        match failures.first() {
            Some(failure) if nodes.is_empty() => Err(failure.clone()),
            _ => Ok((nodes, failures)),
        }
    }

    /// The servers that the URL names, for reports about unreachable ones.
    pub fn server_names(&self) -> Vec<String> {
        match &self.endpoints {
            Endpoints::Node(info) => vec![info.addr().to_string()],
            Endpoints::Cluster(nodes) => nodes.iter().map(|info| info.addr().to_string()).collect(),
            Endpoints::Sentinel { name, .. } => vec![name.clone()],
        }
    }

    /// The server that a lock belongs to.
    pub fn node_of(&self, lock: &[u8]) -> Result<Node, Failure> {
        let mut first = self.first()?;
        if !self.is_cluster(&mut first) {
            return Ok(first);
        }
        let slot = first.query(cmd("CLUSTER").arg("KEYSLOT").arg(lock))?;
        Node::connect(SlotMap::read(&mut first)?.node_for(slot)?)
    }

    /// The name of the primary if the URL names Sentinels.
    pub fn sentinel_primary(&self) -> Option<&str> {
        match &self.endpoints {
            Endpoints::Sentinel { name, .. } => Some(name),
            _ => None,
        }
    }

    /// The Sentinels of the URL, including unreachable ones.
    pub fn discover_sentinels(&self) -> Vec<Discovered> {
        let discover = |info: &ConnectionInfo| Discovered {
            name: info.addr().to_string(),
            node: connect_sentinel(info),
        };
        self.sentinels().iter().map(discover).collect()
    }

    pub(super) fn sentinels(&self) -> &[ConnectionInfo] {
        match &self.endpoints {
            Endpoints::Sentinel { sentinels, .. } => sentinels,
            _ => &[],
        }
    }

    pub(super) fn names_cluster(&self) -> bool {
        matches!(self.endpoints, Endpoints::Cluster(_))
    }

    /// Assumes that the server is no cluster node if the user has no permission for INFO.
    pub(super) fn is_cluster(&self, node: &mut Node) -> bool {
        self.names_cluster()
            || node
                .info(&["cluster"])
                .is_ok_and(|info| info.get("cluster_enabled") == "1")
    }
}

impl Discovered {
    fn connect(info: &ConnectionInfo) -> Self {
        Self {
            name: info.addr().to_string(),
            node: Node::connect(info),
        }
    }
}

impl Node {
    /// The replicas that it names in INFO replication, including unreachable ones.
    pub fn discover_replicas(&self, info: &Fields) -> Vec<Discovered> {
        let addresses = replica_addresses(info).into_iter();
        addresses
            .map(|(host, port)| Discovered::connect(&at(&self.info, Some(host), port)))
            .collect()
    }
}

/// Lines such as `slave0:ip=127.0.0.1,port=7001,state=online,...`
fn replica_addresses(info: &Fields) -> Vec<(String, u16)> {
    let lines = info.0.iter().filter(|(name, _)| {
        let number = name.strip_prefix("slave").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    lines
        .filter_map(|(_, line)| {
            let field = |name| line.split(',').find_map(|field| field.strip_prefix(name));
            Some((field("ip=")?.to_owned(), field("port=")?.parse().ok()?))
        })
        .collect()
}

fn connect_sentinel(info: &ConnectionInfo) -> Result<Node, Failure> {
    Node::connect(info).map_err(|failure| match failure.code {
        Code::NotPermitted => Failure::new(
            failure.code,
            format!(
                "Sentinel {} requires a password: set DLOCK_SENTINEL_AUTH, or pass it with --sentinel-pass (and \
                 --sentinel-user)",
                info.addr()
            ),
        ),
        _ => failure,
    })
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
