//! A client of one lock, with a connection of its own.

use crate::error::Result;
use crate::locks::fence_of;
use crate::server::Server;
use crate::wire::{Connection, command};

pub struct LockOwner {
    pub connection: Connection,
    /// Waits in the queue.
    acquire: Vec<u8>,
    pub release: Vec<u8>,
}

impl LockOwner {
    pub fn new(server: &Server, key: &str, owner: &str, lease_ms: &str) -> Result<Self> {
        Ok(Self {
            connection: server.connect()?,
            acquire: command(&["DLOCK.ACQUIRE", key, owner, lease_ms, "BLOCK", "0"]),
            release: command(&["DLOCK.RELEASE", key, owner]),
        })
    }

    pub fn ask(&mut self) -> Result<()> {
        self.connection.send(&self.acquire)
    }

    /// The fence, once the lock is granted.
    pub fn granted(&mut self) -> Result<i64> {
        fence_of(&self.connection.receive()?)
    }

    pub fn send_release(&mut self) -> Result<()> {
        self.connection.send(&self.release)
    }

    pub fn released(&mut self) -> Result<()> {
        match self.connection.receive()? {
            redis::Value::Int(0) => Ok(()),
            reply => Err(format!("not released: {reply:?}").into()),
        }
    }
}
