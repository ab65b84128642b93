//! Servers with the module, in the settings that users run.

use std::env;
use std::process::Command;

use crate::error::Result;
use crate::wire::Connection;

/// A setting and its lines in the configuration. A rewrite of the log would cost whichever lock is being measured.
pub const SETTINGS: [(&str, &str); 4] = [
    ("none", ""),
    (
        "everysec",
        "appendonly yes\nappendfsync everysec\nauto-aof-rewrite-percentage 0",
    ),
    (
        "always",
        "appendonly yes\nappendfsync always\nauto-aof-rewrite-percentage 0",
    ),
    (ONE_REPLICA, ""),
];
const ONE_REPLICA: &str = "one replica";
const NO_REPLICA: &str = "the server has no replica";

/// A server on a free port, killed when dropped.
///
/// The test kit panics where a server cannot be started at all, which aborts a release build. Whatever can fail in the
/// middle of a run is an error here instead: nothing else would stop the servers that are running.
pub struct Server {
    server: dlock_testkit::Server,
    replicas: Vec<dlock_testkit::Server>,
}

impl Server {
    /// Writes nothing to disk.
    pub fn start() -> Result<Self> {
        Self::with("")
    }

    /// With more lines in its configuration.
    pub fn with(lines: &str) -> Result<Self> {
        crate::interrupt::check()?;
        let program = program();
        let server = dlock_testkit::Server::launched_by(&[&program], lines);
        let server = server.map_err(|log| format!("{program} did not start:\n{log}"))?;
        Ok(Self {
            server,
            replicas: Vec::new(),
        })
    }

    pub fn in_setting((name, lines): (&str, &str)) -> Result<Self> {
        let mut server = Self::with(lines)?;
        if name == ONE_REPLICA {
            server.add_replica("");
        }
        Ok(server)
    }

    /// A primary and its replicas, all with these lines in their configurations.
    pub fn with_replicas(count: usize, lines: &str) -> Result<Self> {
        let mut server = Self::with(lines)?;
        for _ in 0..count {
            server.add_replica(lines);
        }
        Ok(server)
    }

    /// Returns once it is in sync.
    pub fn add_replica(&mut self, lines: &str) {
        self.replicas.push(self.server.replica_with(lines));
    }

    /// Of the replica that a failover promotes.
    pub fn replica_port(&self) -> Result<u16> {
        Ok(self.replicas.first().ok_or(NO_REPLICA)?.port())
    }

    /// Kills the primary, and promotes the first replica at once, which takes its place here. The others follow it.
    pub fn fail_over(&mut self) -> Result<()> {
        if self.replicas.is_empty() {
            return Err(NO_REPLICA.into());
        }
        self.server.kill();
        self.server = self.replicas.remove(0);
        self.connect()?.call(&["REPLICAOF", "NO", "ONE"])?;
        let port = self.port().to_string();
        for replica in &self.replicas {
            Connection::open(replica.port())?.call(&["REPLICAOF", "127.0.0.1", &port])?;
        }
        Ok(())
    }

    pub fn connect(&self) -> Result<Connection> {
        Connection::open(self.port())
    }

    pub fn port(&self) -> u16 {
        self.server.port()
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }
}

fn program() -> String {
    env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// Name and number: `Redis 7.0.15`.
pub fn version() -> Result<String> {
    let program = program();
    let output = Command::new(&program)
        .arg("--version")
        .output()
        .map_err(|error| {
            format!("cannot run {program}: {error} (install Redis or Valkey, or set DLOCK_SERVER)")
        })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or("?");
    let number = words.find_map(|word| word.strip_prefix("v=")).unwrap_or("?");
    Ok(format!("{name} {number}"))
}
