//! A client that retries after 10 ms.

use std::time::{Duration, Instant};

use super::counting::{CountingConnection, expect, owned, sleep_until};
use super::{Client, ClientConfig};
use crate::Result;
use crate::implementations::command::{is_ok, is_one};
use crate::resp::Reply;

const RETRY_INTERVAL: Duration = Duration::from_millis(10);

struct Polling {
    connection: CountingConnection,
    acquire: Vec<String>,
    release: Vec<String>,
}

/// The commands reply as `SET NX` and `DEL` do.
pub fn open(config: &ClientConfig, acquire: &[&str], release: &[&str]) -> Result<Box<dyn Client>> {
    Ok(Box::new(Polling {
        connection: CountingConnection::new(config.server.connect()?),
        acquire: owned(acquire),
        release: owned(release),
    }))
}

impl Client for Polling {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        loop {
            match self.connection.call(&self.acquire)? {
                Reply::Null => {}
                reply => return expect(is_ok(&reply), &reply).map(|()| true),
            }
            if !sleep_until(RETRY_INTERVAL, end)? {
                return Ok(false);
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        let reply = self.connection.call(&self.release)?;
        expect(is_one(&reply), &reply)
    }

    fn commands(&self) -> Option<u64> {
        Some(self.connection.commands)
    }
}
