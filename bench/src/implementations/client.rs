//! A client of any implementation, and how to open one.

use std::time::Instant;

use super::command::Names;
use super::servers::Servers;
use crate::error::Result;

/// Acquires and releases one lock repeatedly.
pub trait Client: Send {
    /// Waits for the lock by the implementation's own policy. False if it stopped waiting at `end`.
    fn acquire(&mut self, end: Instant) -> Result<bool>;

    fn release(&mut self) -> Result<()>;

    /// Commands sent so far, to all servers. `None` if only the servers know.
    fn commands(&self) -> Option<u64>;
}

/// Lock and identity of a client.
pub struct ClientConfig<'a> {
    pub(super) servers: &'a Servers,
    pub(super) key: &'a str,
    /// Of the client, counting from zero.
    pub(super) number: usize,
    pub(super) lease_ms: u64,
}

/// How to open a client of one implementation.
pub type Open = fn(&ClientConfig) -> Result<Box<dyn Client>>;

/// Permits of each of [`SEMAPHORES`](super::SEMAPHORES).
pub const PERMITS: usize = 3;

impl Servers {
    pub fn open(&self, open: Open, key: &str, number: usize, lease_ms: u64) -> Result<Box<dyn Client>> {
        open(&ClientConfig {
            servers: self,
            key,
            number,
            lease_ms,
        })
    }
}

impl ClientConfig<'_> {
    pub(super) fn names(&self, owner: String) -> Names {
        Names {
            key: self.key.into(),
            owner,
            lease_ms: self.lease_ms,
            request_id: 0,
        }
    }
}
