//! etcd's own lock (`v3lockpb`: <https://etcd.io/docs/v3.4/dev-guide/api_concurrency_reference_v3/>), through the
//! JSON gateway that every etcd has. A request blocks in the server until the lock is granted.
//!
//! etcd does more: every step is on disk on a majority of members (here: one) before it is answered. The gateway costs
//! some tenths of a millisecond that a gRPC client would save.

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Client, ClientConfig};
use crate::interruptible_stream::InterruptibleStream;
use crate::{Result, interrupt};
use dlock_testkit::free_port;

const START_TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One member on free ports, killed and its directory removed when dropped.
pub struct Etcd {
    child: Child,
    // After the child: fields are dropped in order, after `drop`.
    _directory: TempDir,
    port: u16,
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
    fn lease(&self, seconds: u64) -> Result<(String, u64)> {
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

struct Session {
    http: Http,
    name: String,
    lease: String,
    /// Key of the hold, which unlock needs.
    key: Option<Value>,
    commands: u64,
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let etcd = config.servers.etcd.as_ref().ok_or("etcd is not running")?;
    let (lease, _) = etcd.lease(config.lease_ms.div_ceil(1000))?;
    Ok(Box::new(Session {
        http: Http::open(etcd.port)?,
        // How the gateway encodes bytes.
        name: BASE64_STANDARD.encode(config.key),
        lease,
        key: None,
        commands: 0,
    }))
}

impl Client for Session {
    /// Stays in etcd's queue past `end`: the others stop then, so it is granted soon after.
    fn acquire(&mut self, _end: Instant) -> Result<bool> {
        self.commands += 1;
        let body = json!({ "name": self.name, "lease": self.lease });
        let reply = self.http.post("/v3/lock/lock", &body)?;
        self.key = reply.get("key").cloned();
        match self.key {
            Some(_) => Ok(true),
            None => Err(format!("unexpected reply to /v3/lock/lock: {reply}").into()),
        }
    }

    fn release(&mut self) -> Result<()> {
        self.commands += 1;
        let key = self.key.take().ok_or("the lock is not held")?;
        self.http
            .post("/v3/lock/unlock", &json!({ "key": key }))
            .map(drop)
    }

    fn commands(&self) -> Option<u64> {
        Some(self.commands)
    }
}

/// A minimal HTTP client: one request at a time on a persistent connection.
struct Http(BufReader<InterruptibleStream>);

impl Http {
    fn open(port: u16) -> io::Result<Self> {
        Ok(Self(BufReader::new(InterruptibleStream::connect(port)?)))
    }

    fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        interrupt::check()?;
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all((head + &body).as_bytes())?;
        let status = self.line()?;
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse()?);
            }
        }
        let mut body = vec![0; length.ok_or_else(|| format!("no Content-Length: {status}"))?];
        self.0.read_exact(&mut body)?;
        if status.split(' ').nth(1) == Some("200") {
            Ok(serde_json::from_slice(&body)?)
        } else {
            Err(format!("etcd answered {status}: {}", String::from_utf8_lossy(&body)).into())
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or("etcd closed the connection")?;
        Ok(line.to_owned())
    }
}
