//! `SET NX PX`, then `DELIFEQ`: the owner is checked by one command, without a script. Valkey has it since 9.0
//! (<https://valkey.io/commands/delifeq/>).
//!
//! Nobody has published a rule of waiting for it; it gets that of the articles, to try again after 10 ms.

use std::time::Instant;

use super::lua_pair::RETRY_INTERVAL;
use super::wire::{Wire, expect, pause};
use super::{Client, Wanted};
use crate::Result;
use crate::contenders::command::{Command, Contender, KEY, LEASE_MS, OWNER, is_ok, is_one};
use crate::resp::Reply;

pub const COMMAND: &str = "DELIFEQ";

pub fn contender() -> Contender {
    Contender::new(
        Command::new(&["SET", KEY, OWNER, "NX", "PX", LEASE_MS], is_ok),
        Command::new(&[COMMAND, KEY, OWNER], is_one),
    )
}

struct Polling {
    wire: Wire,
    key: String,
    owner: String,
    lease_ms: String,
}

pub fn open(wanted: &Wanted) -> Result<Box<dyn Client>> {
    Ok(Box::new(Polling {
        wire: Wire::new(wanted.server.connect()?),
        key: wanted.key.into(),
        owner: format!("owner-{:06}", wanted.number),
        lease_ms: wanted.lease_ms.to_string(),
    }))
}

impl Client for Polling {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        loop {
            let command = ["SET", &self.key, &self.owner, "NX", "PX", &self.lease_ms];
            match self.wire.call(&command)? {
                Reply::Null => {}
                reply => return expect(is_ok(&reply), &reply).map(|()| true),
            }
            if !pause(RETRY_INTERVAL, end)? {
                return Ok(false);
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        let reply = self.wire.call(&[COMMAND, &self.key, &self.owner])?;
        expect(is_one(&reply), &reply)
    }

    fn commands(&self) -> Option<u64> {
        Some(self.wire.commands)
    }
}
