use std::env;
use std::fs;
use std::path::Path;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, TlsCertificates, cmd,
};
use redis_dlock_client::Address;

use super::node::Node;
use super::place::{Place, host_of, parse, percent_encoded, tcp, tcp_address};
use super::slots;
use crate::args::ServerArgs;
use crate::exit::{Code, Failure};

/// Where the servers are, and how to get in.
#[derive(Clone)]
pub struct Target {
    place: Place,
    login: RedisConnectionInfo,
    certificates: Option<TlsCertificates>,
}

/// A server that is known by name, and may be out of reach.
pub struct Found {
    pub name: String,
    pub node: Result<Node, Failure>,
}

impl Target {
    /// What the command line says, and what the environment says where it is silent.
    pub fn new(args: &ServerArgs) -> Result<Self, Failure> {
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        Self::of(args, variable("DLOCK_URL"), variable("REDISCLI_AUTH"))
    }

    fn of(args: &ServerArgs, url: Option<String>, password: Option<String>) -> Result<Self, Failure> {
        let is_named = args.host.is_some() || args.port.is_some() || args.socket.is_some();
        let url = args.url.clone().or(url.filter(|_| !is_named));
        let (mut place, mut login) = match url {
            Some(url) => parse(&url)?,
            None => (Place::Node(address(args)), RedisConnectionInfo::default()),
        };
        if args.tls {
            place = place.with_tls();
        }
        if let Some(user) = &args.user {
            login = login.set_username(user);
        }
        let unless_told = password.filter(|_| login.password().is_none());
        if let Some(password) = args.password.clone().or(unless_told) {
            login = login.set_password(password);
        }
        if login.username().is_some() && login.password().is_none() {
            return Err(Failure::usage(
                "a user needs a password: set REDISCLI_AUTH, or name one with -a or in the URL",
            ));
        }
        if let Some(database) = args.database {
            login = login.set_db(database.into());
        }
        let certificates = certificates(args)?;
        Ok(Self {
            place,
            login,
            certificates,
        })
    }

    /// The server to begin with: the primary as far as it is known, any node of a cluster.
    pub fn first(&self) -> Result<Node, Failure> {
        match &self.place {
            Place::Node(address) => self.connect(address.clone()),
            Place::Cluster { tls, hosts } => {
                let mut nodes = hosts.iter().map(|host| self.connect(tcp(host, 6379, *tls)?));
                first_good(&mut nodes)
            }
            Place::Sentinels { tls, hosts, primary } => {
                let mut answers = hosts.iter().map(|host| {
                    let sentinel = Self {
                        login: RedisConnectionInfo::default(),
                        ..self.clone()
                    };
                    let sentinel = sentinel.connect(tcp(host, 26379, *tls)?)?;
                    primary_known_to(sentinel, primary)
                });
                let (host, port) = first_good(&mut answers)?;
                self.connect(tcp_address(host, port, *tls))
            }
        }
    }

    /// All servers that grant locks: one, or the primaries of a cluster.
    pub fn primaries(&self) -> Result<Vec<Node>, Failure> {
        self.each_primary()?.into_iter().map(|found| found.node).collect()
    }

    /// As [`Target::primaries`], with those of a cluster that are out of reach.
    pub fn each_primary(&self) -> Result<Vec<Found>, Failure> {
        let mut first = self.first()?;
        if !self.is_cluster(&mut first) {
            return Ok(vec![Found {
                name: first.name.clone(),
                node: Ok(first),
            }]);
        }
        let mut primaries: Vec<ConnectionAddr> = Vec::new();
        for range in slots::of(&mut first)? {
            let address = self.like(&first, range.host, range.port);
            if !primaries.contains(&address) {
                primaries.push(address);
            }
        }
        if primaries.is_empty() {
            // Of a cluster that is still to be made. What it is asked it can answer, and the doctor tells what is wrong.
            primaries.push(first.address.clone());
        }
        Ok(primaries
            .into_iter()
            .map(|address| self.look_for(address))
            .collect())
    }

    /// A server that another one told of: a node of its cluster, or a replica.
    pub fn beside(&self, other: &Node, host: String, port: u16) -> Found {
        self.look_for(self.like(other, host, port))
    }

    /// The server that has a lock.
    pub fn node_of(&self, name: &[u8]) -> Result<Node, Failure> {
        let mut first = self.first()?;
        if !self.is_cluster(&mut first) {
            return Ok(first);
        }
        let slot = first.query(cmd("CLUSTER").arg("KEYSLOT").arg(name))?;
        let ranges = slots::of(&mut first)?;
        let range = ranges.iter().find(|range| range.contains(slot)).ok_or_else(|| {
            Failure::new(
                Code::Unavailable,
                format!(
                    "no node of the cluster serves slot {slot}, where this lock belongs: see dlock doctor"
                ),
            )
        })?;
        self.connect(self.like(&first, range.host.clone(), range.port))
    }

    /// For the client library, after a first contact that tells at once what is wrong: a server out of reach,
    /// a wrong password, a replica.
    pub fn address(&self) -> Result<Address, Failure> {
        let mut first = self.first()?;
        let is_cluster = self.is_cluster(&mut first);
        if !is_cluster
            && first
                .info("replication")
                .is_ok_and(|info| info.get("role") == "slave")
        {
            return Err(Failure::new(
                Code::Unavailable,
                format!(
                    "{} is a replica, it grants no locks: name the primary, or the Sentinels",
                    first.name
                ),
            ));
        }
        if is_cluster && slots::of(&mut first)?.is_empty() {
            return Err(Failure::new(
                Code::Unavailable,
                format!(
                    "{} is a node of a cluster that serves no slots yet: make it with redis-cli --cluster create",
                    first.name
                ),
            ));
        }
        let address = match &self.place {
            Place::Node(_) if !is_cluster => self.client(first.address)?.try_into(),
            Place::Sentinels { tls, hosts, primary } => {
                let path = format!("/{primary}/{}", self.login.db());
                self.url("sentinel", *tls, hosts, &path)?.parse()
            }
            Place::Node(address) => {
                let (host, tls) = host_of(address)?;
                self.url("cluster", tls, &[host], "")?.parse()
            }
            Place::Cluster { tls, hosts } => self.url("cluster", *tls, hosts, "")?.parse(),
        };
        Ok(address?)
    }

    fn url(&self, kind: &str, tls: bool, hosts: &[String], path: &str) -> Result<String, Failure> {
        if self.certificates.is_some() {
            return Err(Failure::usage(
                "--cacert and --cert do not work with Sentinels or a cluster here: add the authority to those of the system",
            ));
        }
        let scheme = if tls { "rediss" } else { "redis" };
        let mut credentials = String::new();
        if let Some(password) = self.login.password() {
            let user = self.login.username().unwrap_or_default();
            credentials = format!("{}:{}@", percent_encoded(user), percent_encoded(password));
        }
        Ok(format!(
            "{scheme}-{kind}://{credentials}{}{path}",
            hosts.join(",")
        ))
    }

    /// A user who may not ask is taken to know that this is no cluster.
    fn is_cluster(&self, node: &mut Node) -> bool {
        matches!(self.place, Place::Cluster { .. })
            || node
                .info("cluster")
                .is_ok_and(|info| info.get("cluster_enabled") == "1")
    }

    fn like(&self, other: &Node, host: String, port: u16) -> ConnectionAddr {
        let (own_host, tls) = match &other.address {
            ConnectionAddr::TcpTls { host, .. } => (host.as_str(), true),
            ConnectionAddr::Tcp(host, _) => (host.as_str(), false),
            _ => ("127.0.0.1", false),
        };
        // A node that does not know its own address leaves it out.
        let host = if host.is_empty() {
            own_host.to_owned()
        } else {
            host
        };
        tcp_address(host, port, tls)
    }

    fn client(&self, address: ConnectionAddr) -> Result<Client, Failure> {
        let info = address
            .into_connection_info()?
            .set_redis_settings(self.login.clone());
        let client = match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        };
        client.map_err(|error| Failure::usage(format!("the address cannot be used: {error}")))
    }

    fn look_for(&self, address: ConnectionAddr) -> Found {
        Found {
            name: address.to_string(),
            node: self.connect(address),
        }
    }

    fn connect(&self, address: ConnectionAddr) -> Result<Node, Failure> {
        Node::connect(&self.client(address.clone())?, address)
    }
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

fn primary_known_to(mut sentinel: Node, primary: &str) -> Result<(String, u16), Failure> {
    let command = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(primary).take();
    let known: Option<(String, u16)> = sentinel.query(&command)?;
    known.ok_or_else(|| {
        let message = format!("the Sentinel {} knows no primary {primary}", sentinel.name);
        Failure::new(Code::Unavailable, message)
    })
}

/// The first that succeeds, else the last failure.
fn first_good<T>(attempts: &mut dyn Iterator<Item = Result<T, Failure>>) -> Result<T, Failure> {
    let mut failure = Failure::usage("the URL names no host");
    for attempt in attempts {
        match attempt {
            Ok(good) => return Ok(good),
            Err(bad) => failure = bad,
        }
    }
    Err(failure)
}

fn certificates(args: &ServerArgs) -> Result<Option<TlsCertificates>, Failure> {
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
#[path = "target_tests.rs"]
mod tests;
