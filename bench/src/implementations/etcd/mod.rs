//! etcd's own lock (`v3lockpb`: <https://etcd.io/docs/v3.4/dev-guide/api_concurrency_reference_v3/>), through the
//! JSON gateway that every etcd has. A request blocks in the server until the lock is granted.
//!
//! etcd does more: every step is on disk on a majority of members (here: one) before it is answered. The gateway costs
//! some tenths of a millisecond that a gRPC client would save.

mod http;
pub(super) mod server;

use std::time::Instant;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::client::{Client, ClientConfig};
use crate::error::Result;
use http::Http;

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
