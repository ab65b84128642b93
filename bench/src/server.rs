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
    replica: Option<dlock_testkit::Server>,
}

impl Server {
    /// Writes nothing to disk.
    pub fn start() -> Result<Self> {
        Self::running(&program(), "")
    }

    /// With more lines in its configuration.
    pub fn with(lines: &str) -> Result<Self> {
        Self::running(&program(), lines)
    }

    /// The one node of a cluster.
    pub fn cluster() -> Result<Self> {
        let bus = dlock_testkit::free_port();
        let server = Self::with(&format!("cluster-enabled yes\ncluster-port {bus}"))?;
        let mut control = server.connect()?;
        control.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"])?;
        while !control
            .ask::<String>(&["CLUSTER", "INFO"])?
            .contains("cluster_state:ok")
        {}
        Ok(server)
    }

    /// Another server program than `DLOCK_SERVER`.
    pub fn running(program: &str, lines: &str) -> Result<Self> {
        crate::interrupt::check()?;
        let server = dlock_testkit::Server::launched_by(&[program], lines);
        let server = server.map_err(|log| format!("{program} did not start:\n{log}"))?;
        Ok(Self {
            server,
            replica: None,
        })
    }

    pub fn in_setting((name, lines): (&str, &str)) -> Result<Self> {
        let mut server = Self::with(lines)?;
        server.replica = (name == ONE_REPLICA).then(|| server.server.replica());
        Ok(server)
    }

    /// A primary and its replica, both with these lines in their configurations.
    pub fn with_replica(lines: &str) -> Result<Self> {
        let mut server = Self::with(lines)?;
        server.replica = Some(server.server.replica_with(lines));
        Ok(server)
    }

    pub fn replica_port(&self) -> Result<u16> {
        Ok(self.replica.as_ref().ok_or(NO_REPLICA)?.port())
    }

    /// Kills the primary, and promotes the replica at once, which takes its place here.
    pub fn fail_over(&mut self) -> Result<()> {
        let replica = self.replica.take().ok_or(NO_REPLICA)?;
        self.server.kill();
        self.server = replica;
        self.connect()?.call(&["REPLICAOF", "NO", "ONE"])
    }

    /// A shared lock with this many holders, by RESTORE.
    pub fn restore_lock_with_holders(&self, key: &str, holders: u64) {
        self.server.client().restore_lock_with_holders(key, holders);
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

    /// SIGSTOP: its connections stay open, and the system accepts new ones.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// SIGKILL: connections are refused.
    pub fn kill(&mut self) {
        self.server.kill();
    }
}

fn program() -> String {
    env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// Name and number: `Redis 7.0.15`.
pub fn version() -> Result<String> {
    version_of(&program())
}

pub fn version_of(program: &str) -> Result<String> {
    let output = Command::new(program).arg("--version").output().map_err(|error| {
        format!("cannot run {program}: {error} (install Redis or Valkey, or set DLOCK_SERVER)")
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or("?");
    let number = words.find_map(|word| word.strip_prefix("v=")).unwrap_or("?");
    Ok(format!("{name} {number}"))
}
