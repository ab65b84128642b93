//! `SET NX PX`, then `DELIFEQ`, which checks the owner without a script. In Valkey since 9.0
//! (<https://valkey.io/commands/delifeq/>).
//!
//! There is no published retry policy for it. It retries after 10 ms, like the re-entrant Lua pair.

use super::{Client, ClientConfig, polling};
use crate::Result;
use crate::implementations::command::{Command, Implementation, KEY, LEASE_MS, OWNER, is_ok, is_one};

pub const COMMAND: &str = "DELIFEQ";

pub fn implementation() -> Implementation {
    Implementation::new(
        Command::new(&["SET", KEY, OWNER, "NX", "PX", LEASE_MS], is_ok),
        Command::new(&[COMMAND, KEY, OWNER], is_one),
    )
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let (owner, lease_ms) = (format!("owner-{:06}", config.number), config.lease_ms.to_string());
    let acquire = ["SET", config.key, &owner, "NX", "PX", &lease_ms];
    polling::open(config, &acquire, &[COMMAND, config.key, &owner])
}
