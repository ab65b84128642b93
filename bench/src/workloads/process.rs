//! A process that waits through an inbox.

use redis::Value;

use crate::error::Result;
use crate::locks::LEASE;
use crate::wire::{Connection, command, encode};

pub struct Process {
    pub requests: Connection,
    /// Blocked in GRANTS.
    pub reader: Connection,
    inbox: String,
}

impl Process {
    /// After its death, its inbox lives for this long.
    pub fn start(port: u16, inbox: &str, ttl_ms: u64) -> Result<Self> {
        let mut reader = Connection::open(port)?;
        let created = ["DLOCK.GRANTS", inbox, "0", "TTL", &ttl_ms.to_string()];
        let (cursor, ..): (u64, u64, Vec<Value>) = reader.ask(&created)?;
        // For longer than any measurement.
        let words = ["DLOCK.GRANTS", inbox, &cursor.to_string(), "BLOCK", "60000"];
        reader.send(&command(&words))?;
        Ok(Self {
            requests: Connection::open(port)?,
            reader,
            inbox: inbox.into(),
        })
    }

    pub fn encode_acquire(&self, (key, owner): (&str, &str), id: &str, bytes: &mut Vec<u8>) {
        let lock = ["DLOCK.ACQUIRE", key, owner, LEASE];
        let wait = ["QUEUE", &self.inbox, "0", "REQID", id];
        encode(&[&lock[..], &wait].concat(), bytes);
    }
}
