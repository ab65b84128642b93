//! Implementations of a lock, each with the commands and the retry policy of its original, cited in its file.
//!
//! They are compared in two ways: by the commands for an uncontended lock, and as clients that wait for a contended
//! one.

pub mod async_lock;
mod client;
pub mod command;
pub mod dlock;
pub mod etcd;
pub mod plain_key;
mod polling;
mod redisson;
pub mod redsync;
pub mod rslock;
mod servers;
mod session;

use crate::error::Result;
use crate::resp::{Connection, Reply};
use crate::results::DLOCK;
pub use client::{Client, Open, PERMITS};
use command::Implementation;
pub use servers::Servers;

/// Name of an implementation, and how to open its clients.
pub type ClientKind = (&'static str, Open);

impl Servers {
    /// Implementations whose clients wait for a contended lock, DLOCK first.
    pub fn client_kinds(&self) -> Result<Vec<ClientKind>> {
        let mut kinds: Vec<ClientKind> = vec![
            (DLOCK, dlock::open),
            ("re-entrant Lua, 10 ms polling", plain_key::open_lua),
            ("redsync, 1 server", redsync::open),
            ("redsync, 5 servers", redsync::open_quorum),
            ("Redisson's RLock", redisson::open),
            ("rslock", rslock::open),
        ];
        if has_command(&mut self.server.connect()?, plain_key::DELIFEQ)? {
            kinds.push(("SET NX + DELIFEQ, 10 ms polling", plain_key::open_delifeq));
        }
        if self.has_etcd() {
            kinds.push(("etcd's lock RPC", etcd::open));
        }
        Ok(kinds)
    }
}

/// Name of an implementation, and how to open its readers and its writers.
pub const READ_WRITE_LOCKS: [(&str, Open, Open); 2] = [
    (DLOCK, dlock::open_shared, dlock::open),
    (
        "Redisson's RReadWriteLock",
        redisson::open_reader,
        redisson::open_writer,
    ),
];

pub const SEMAPHORES: [ClientKind; 2] = [
    (DLOCK, dlock::open_semaphore),
    ("Redisson's RSemaphore", redisson::open_semaphore),
];

/// Implementations by their commands, DLOCK first. Loads their scripts.
pub fn all(connection: &mut Connection) -> Result<Vec<(&'static str, Implementation)>> {
    let mut implementations = vec![
        (DLOCK, Implementation::dlock()),
        ("SET NX PX + DEL", plain_key::set_and_del()),
        ("SET NX PX + Lua release", plain_key::set_and_lua(connection)?),
        (
            "re-entrant Lua by EVALSHA",
            plain_key::lua_by_evalsha(connection)?,
        ),
        ("re-entrant Lua by EVAL", plain_key::lua_by_eval()),
        ("Redisson's RLock", redisson::mutex(connection)?),
    ];
    if has_command(connection, plain_key::DELIFEQ)? {
        implementations.push(("SET NX PX + DELIFEQ", plain_key::set_and_delifeq()));
    }
    Ok(implementations)
}

/// Why an implementation is not measured, one line each.
pub fn skipped(connection: &mut Connection, etcd: bool) -> Result<Vec<&'static str>> {
    let mut skipped = Vec::new();
    if !has_command(connection, plain_key::DELIFEQ)? {
        skipped.push("SET NX + DELIFEQ is not measured: this server has no DELIFEQ (Valkey 9 and later)");
    }
    if !etcd {
        skipped.push("etcd is not measured: it is not installed (Debian: etcd-server; or set DLOCK_ETCD)");
    }
    Ok(skipped)
}

fn has_command(connection: &mut Connection, name: &str) -> Result<bool> {
    match connection.call(&["COMMAND", "INFO", name])? {
        Reply::Array(commands) => Ok(commands.iter().any(|command| *command != Reply::Null)),
        reply => Err(format!("COMMAND INFO answered {reply:?}").into()),
    }
}

#[cfg(test)]
mod tests;
