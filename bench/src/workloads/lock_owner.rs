//! An owner on its own connection, with its commands encoded in advance.

use std::io;

use crate::error::Result;
use crate::implementations::dlock::fence_of;
use crate::resp::{Connection, command};

pub struct LockOwner {
    pub connection: Connection,
    /// Waits in the queue without a timeout.
    pub acquire: Vec<u8>,
    pub release: Vec<u8>,
}

impl LockOwner {
    pub fn new(connection: Connection, key: &str, owner: &str, lease_ms: u64) -> Self {
        let lease_ms = lease_ms.to_string();
        Self {
            connection,
            acquire: command(&["DLOCK.ACQUIRE", key, owner, &lease_ms, "BLOCK", "0"]),
            release: command(&["DLOCK.RELEASE", key, owner]),
        }
    }

    pub fn ask(&mut self) -> io::Result<()> {
        self.connection.send(&self.acquire)
    }

    pub fn release_and_ask(&mut self) -> io::Result<()> {
        self.connection.send(&[&self.release[..], &self.acquire].concat())
    }

    /// Reads a grant. Returns its fence.
    pub fn granted(&mut self) -> Result<i64> {
        fence_of(&self.connection.receive()?)
    }
}
