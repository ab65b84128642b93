//! Servers of our own, and where to find what they run.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use rustix::process::Pid;
use tempfile::TempDir;

use crate::Result;
use crate::interrupt;
use crate::resp::{Connection, Reply};

const START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Between asking for a free port and using it, somebody else may take it.
const PORT_ATTEMPTS: usize = 5;

/// A fresh server on a free port, killed and its folder removed when dropped, whatever ends the run.
pub struct Server {
    child: Child,
    // Behind the child: fields are dropped in order, after `drop`.
    folder: TempDir,
    port: u16,
}

/// The module that is measured, always a release build.
pub fn module() -> Result<PathBuf> {
    let module = match env::var_os("DLOCK_MODULE") {
        Some(path) => PathBuf::from(path),
        None => target_folder()?.join("release").join("libdlock.so"),
    };
    module.canonicalize().map_err(|_| {
        format!(
            "no module at {}: build it with `cargo build --release`, or set DLOCK_MODULE",
            module.display()
        )
        .into()
    })
}

/// This program is in `target/<profile>/`, wherever `target` is.
pub fn target_folder() -> Result<PathBuf> {
    let program = env::current_exe()?;
    Ok(program
        .ancestors()
        .nth(2)
        .ok_or("this program is in no target folder")?
        .to_owned())
}

/// Free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn program() -> String {
    env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// What the module says of itself, once it is loaded.
pub fn module_version(module: &Path) -> Result<String> {
    let reply = Server::start(module)?.connect()?.call(&["MODULE", "LIST"])?;
    let number = match reply {
        Reply::Array(modules) => modules.iter().find_map(version_of_dlock),
        _ => None,
    };
    let number = number.ok_or("the server does not list the module")?;
    let (major, minor, patch) = (number / 10_000, number / 100 % 100, number % 100);
    Ok(format!("dlock {major}.{minor}.{patch}"))
}

/// From the names and values of one module.
fn version_of_dlock(module: &Reply) -> Option<i64> {
    let Reply::Array(fields) = module else { return None };
    let value = |name: &str| {
        let is_it = |field: &Reply| matches!(field, Reply::Bulk(text) if text == name.as_bytes());
        fields
            .chunks(2)
            .find(|pair| is_it(&pair[0]))
            .and_then(|pair| pair.get(1))
    };
    match (value("name"), value("ver")) {
        (Some(Reply::Bulk(name)), Some(Reply::Integer(version))) if name == b"dlock" => Some(*version),
        _ => None,
    }
}

/// What the server says of itself, its allocator too, on which memory depends.
pub fn version() -> Result<String> {
    version_of(&program())
}

/// The same of any server.
pub fn version_of(program: &str) -> Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|error| cannot_run(program, &error))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Server {
    /// Keeps nothing on disk: neither a snapshot nor a log may take part in a measurement.
    pub fn start(module: &Path) -> Result<Self> {
        Self::start_with(module, &[])
    }

    /// The same with settings of its own, as they stand on a command line.
    pub fn start_with(module: &Path, settings: &[&str]) -> Result<Self> {
        Self::start_program(&program(), module, settings)
    }

    /// The same with another server than the one that is measured elsewhere.
    pub fn start_program(program: &str, module: &Path, settings: &[&str]) -> Result<Self> {
        for _ in 0..PORT_ATTEMPTS {
            if let Some(server) = Self::try_start(program, module, settings)? {
                return Ok(server);
            }
        }
        Err(format!("no free port in {PORT_ATTEMPTS} attempts").into())
    }

    /// `None`: the port was taken.
    fn try_start(program: &str, module: &Path, settings: &[&str]) -> Result<Option<Self>> {
        let folder = TempDir::with_prefix("dlock-bench-")?;
        let port = free_port()?;
        let child = Command::new(program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .args(settings)
            .arg("--dir")
            .arg(folder.path())
            .arg("--loadmodule")
            .arg(module)
            .stdin(Stdio::null())
            .stdout(File::create(log(&folder))?)
            .stderr(File::create(folder.path().join("errors"))?)
            .spawn()
            .map_err(|error| cannot_run(program, &error))?;
        let mut server = Self { child, folder, port };
        let start = Instant::now();
        while start.elapsed() < START_TIMEOUT {
            interrupt::check()?;
            if server.child.try_wait()?.is_some() {
                let log = fs::read_to_string(log(&server.folder))?;
                let taken = log.contains("Address already in use");
                return if taken {
                    Ok(None)
                } else {
                    Err(format!("the server did not start:\n{log}").into())
                };
            }
            if server.is_ready() {
                return Ok(Some(server));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Err(format!("the server was not ready within {START_TIMEOUT:?}").into())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Of the process, and of its thread that carries commands out.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// How often it carried this command out, in scripts too.
    pub fn calls(&self, command: &str) -> Result<f64> {
        let stats = self
            .connect()?
            .info("commandstats", &format!("cmdstat_{command}"))?;
        let Some(stats) = stats else { return Ok(0.0) };
        let mut fields = stats.split(',').filter_map(|field| field.split_once('='));
        let calls = fields.find(|(name, _)| *name == "calls");
        let (_, calls) = calls.ok_or_else(|| format!("INFO commandstats without the calls of {command}"))?;
        Ok(calls.parse()?)
    }

    pub fn connect(&self) -> Result<Connection> {
        Ok(Connection::open(self.port)?)
    }

    pub fn connect_small(&self) -> Result<Connection> {
        Ok(Connection::open_small(self.port)?)
    }

    /// Somebody else's server may have got the port: it has another process id.
    fn is_ready(&self) -> bool {
        let pid = || self.connect()?.info("server", "process_id");
        matches!(pid(), Ok(Some(pid)) if pid == self.child.id().to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log(folder: &TempDir) -> PathBuf {
    folder.path().join("log")
}

fn cannot_run(program: &str, error: &io::Error) -> String {
    format!("cannot run {program}: {error} (install Redis or Valkey, or set DLOCK_SERVER)")
}
