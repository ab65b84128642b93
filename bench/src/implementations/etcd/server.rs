//! The server of etcd, started for a run.

use std::env;
use std::fs::File;
use std::io;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Http;
use crate::error::Result;
use crate::interrupt;
use dlock_testkit::free_port;

const START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One member on free ports, killed and its directory removed when dropped.
pub struct Etcd {
    child: Child,
    // After the child: fields are dropped in order, after `drop`.
    _directory: TempDir,
    pub(super) port: u16,
}

impl Etcd {
    /// `None`: it is not installed.
    pub fn start() -> Result<Option<Self>> {
        let program = env::var("DLOCK_ETCD").unwrap_or_else(|_| "etcd".into());
        let directory = TempDir::with_prefix("dlock-bench-etcd-")?;
        let (port, peer_port) = (free_port(), free_port());
        let url = |port| format!("http://127.0.0.1:{port}");
        let (clients, peers) = (url(port), url(peer_port));
        let child = Command::new(&program)
            .args([
                "--listen-client-urls",
                &clients,
                "--advertise-client-urls",
                &clients,
            ])
            .args([
                "--listen-peer-urls",
                &peers,
                "--initial-advertise-peer-urls",
                &peers,
            ])
            .args(["--initial-cluster", &format!("default={peers}")])
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(directory.path().join("log"))?)
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot run {program}: {error}").into()),
        };
        let etcd = Self {
            child,
            _directory: directory,
            port,
        };
        let start = Instant::now();
        while start.elapsed() < START_TIMEOUT {
            interrupt::check()?;
            if etcd.lease(60).is_ok() {
                return Ok(Some(etcd));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Err(format!("{program} was not ready within {START_TIMEOUT:?}").into())
    }

    /// Creates a lease; returns its id, and its TTL in seconds, which etcd may raise to its minimum.
    pub(super) fn lease(&self, seconds: u64) -> Result<(String, u64)> {
        let reply = Http::open(self.port)?.post("/v3/lease/grant", &json!({ "TTL": seconds }))?;
        match (&reply["ID"], reply["TTL"].as_str().map(str::parse)) {
            (Value::String(id), Some(Ok(seconds))) => Ok((id.clone(), seconds)),
            _ => Err(format!("unexpected reply to /v3/lease/grant: {reply}").into()),
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // An error means that it has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
