//! `SET NX PX`, then `DELIFEQ`, which checks the owner without a script. In Valkey since 9.0
//! (<https://valkey.io/commands/delifeq/>).
//!
//! There is no published retry policy for it. It retries after 10 ms, like the re-entrant Lua pair.

use std::time::Instant;

use super::counting::{CountingConnection, expect, sleep_until};
use super::lua_pair::RETRY_INTERVAL;
use super::{Client, ClientConfig};
use crate::Result;
use crate::implementations::command::{Command, Implementation, KEY, LEASE_MS, OWNER, is_ok, is_one};
use crate::resp::Reply;

pub const COMMAND: &str = "DELIFEQ";

pub fn implementation() -> Implementation {
    Implementation::new(
        Command::new(&["SET", KEY, OWNER, "NX", "PX", LEASE_MS], is_ok),
        Command::new(&[COMMAND, KEY, OWNER], is_one),
    )
}

struct Polling {
    connection: CountingConnection,
    key: String,
    owner: String,
    lease_ms: String,
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    Ok(Box::new(Polling {
        connection: CountingConnection::new(config.server.connect()?),
        key: config.key.into(),
        owner: format!("owner-{:06}", config.number),
        lease_ms: config.lease_ms.to_string(),
    }))
}

impl Client for Polling {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        loop {
            let command = ["SET", &self.key, &self.owner, "NX", "PX", &self.lease_ms];
            match self.connection.call(&command)? {
                Reply::Null => {}
                reply => return expect(is_ok(&reply), &reply).map(|()| true),
            }
            if !sleep_until(RETRY_INTERVAL, end)? {
                return Ok(false);
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        let reply = self.connection.call(&[COMMAND, &self.key, &self.owner])?;
        expect(is_one(&reply), &reply)
    }

    fn commands(&self) -> Option<u64> {
        Some(self.connection.commands)
    }
}
