use std::env;
use std::fs;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::client::Client;
use crate::port::free_port;
use crate::server::Server;
use crate::wait::wait_for;

/// A Sentinel with a quorum of one, that monitors one primary as `main`. It is killed when dropped.
pub struct Sentinel {
    process: Child,
    port: u16,
    // Declared after the process, so that it is dropped last.
    _directory: TempDir,
}

impl Sentinel {
    /// A Sentinel that knows a primary and this many replicas of it.
    pub fn of(primary: &Server, replicas: usize) -> Self {
        Self::start(primary.port(), replicas, "")
    }

    /// As [`Sentinel::of`], with the port of the primary and more lines in the Sentinel's configuration.
    pub fn start(primary_port: u16, replicas: usize, lines: &str) -> Self {
        let directory = TempDir::with_prefix("dlock-sentinel-").expect("a temporary directory can be made");
        let port = free_port();
        let config = directory.path().join("sentinel.conf");
        let lines = format!(
            "bind 127.0.0.1\nport {port}\ndir {}\nsentinel monitor main 127.0.0.1 {primary_port} 1\n\
             sentinel down-after-milliseconds main 2000\nsentinel failover-timeout main 5000\n{lines}\n",
            directory.path().display()
        );
        fs::write(&config, lines).expect("a temporary directory is writable");
        let program = env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into());
        let process = Command::new(&program)
            .arg(&config)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
        let sentinel = Self {
            process,
            port,
            _directory: directory,
        };
        wait_for("the Sentinel", || {
            let client = redis::Client::open(sentinel.url()).expect("the address is well formed");
            client.get_connection().is_ok()
        });
        let mut client = Client::connect(&sentinel.url());
        wait_for("a Sentinel that knows the replicas", || {
            let info = client.server_info("sentinel", "master0");
            info.contains("status=ok") && info.contains(&format!("slaves={replicas}"))
        });
        sentinel
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // An error means that it has exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
