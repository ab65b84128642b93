//! Redis servers with the module, started by the test kit, and the versions of both.

use std::env;
use std::process::Command;

use crate::error::Result;
use crate::resp::Connection;

/// A fresh server on a free port that writes nothing to disk, killed when dropped.
///
/// The test kit panics where a server cannot be started at all. A release build aborts then, so whatever can fail in
/// the middle of a run is an error here instead: nothing else would stop the servers that are running.
pub struct Server(dlock_testkit::Server);

impl Server {
    pub fn start() -> Result<Self> {
        Self::with("")
    }

    /// With more lines in its configuration file.
    pub fn with(lines: &str) -> Result<Self> {
        Self::running(&program(), lines)
    }

    /// With another server program than `DLOCK_SERVER`.
    pub fn running(program: &str, lines: &str) -> Result<Self> {
        crate::interrupt::check()?;
        match dlock_testkit::Server::launched_by(&[program], lines) {
            Ok(server) => Ok(Self(server)),
            Err(log) => Err(format!("{program} did not start:\n{log}").into()),
        }
    }

    /// A replica of this server that has caught up.
    pub fn replica(&self) -> Self {
        Self(self.0.replica())
    }

    /// A cluster of that many primaries, which share the slots evenly and in order.
    pub fn cluster(primaries: u16) -> Vec<Self> {
        let nodes = dlock_testkit::Cluster::start(primaries).nodes;
        nodes.into_iter().map(Self).collect()
    }

    /// A shared lock with this many holders, by RESTORE.
    pub fn restore_lock_with_holders(&self, key: &str, holders: u64) {
        self.0.client().restore_lock_with_holders(key, holders);
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// SIGSTOP.
    pub fn stop(&self) {
        self.0.stop();
    }

    pub fn kill(&mut self) {
        self.0.kill();
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// The process, and its thread that runs commands.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// How often the server has run this command, including calls from scripts.
    pub fn calls(&self, command: &str) -> Result<f64> {
        Ok(self.connect()?.command_stat(command, "calls")?.unwrap_or(0.0))
    }

    pub fn failed_calls(&self, command: &str) -> Result<f64> {
        Ok(self
            .connect()?
            .command_stat(command, "failed_calls")?
            .unwrap_or(0.0))
    }

    pub fn connect(&self) -> Result<Connection> {
        Ok(Connection::open(self.port())?)
    }

    /// With a small read buffer, for thousands of connections.
    pub fn connect_small(&self) -> Result<Connection> {
        Ok(Connection::open_small(self.port())?)
    }
}

fn program() -> String {
    env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// The version of the loaded module.
pub fn module_version() -> Result<String> {
    let modules = Server::start()?.connect()?.text(&["INFO", "modules"])?;
    let fields = modules
        .split([',', '\r', '\n'])
        .skip_while(|field| *field != "module:name=dlock");
    let number = fields.skip(1).find_map(|field| field.strip_prefix("ver="));
    let number: u32 = number.ok_or("INFO modules does not show the module")?.parse()?;
    let (major, minor, patch) = (number / 10_000, number / 100 % 100, number % 100);
    Ok(format!("dlock {major}.{minor}.{patch}"))
}

/// What the server prints for `--version`, including its allocator, which memory figures depend on.
pub fn version() -> Result<String> {
    version_of(&program())
}

pub fn version_of(program: &str) -> Result<String> {
    let output = Command::new(program).arg("--version").output().map_err(|error| {
        format!("cannot run {program}: {error} (install Redis or Valkey, or set DLOCK_SERVER)")
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
