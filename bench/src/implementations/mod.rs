//! Implementations of a lock, each with the commands and the retry policy of its original, cited in its file.
//!
//! They are compared in two ways: by the commands for an uncontended lock, and as clients that wait for a contended
//! one.

pub mod async_lock;
pub mod command;
pub mod dlock;
pub mod etcd;
pub mod plain_key;
mod polling;
mod redisson;
pub mod redsync;
pub mod rslock;
mod session;

use std::time::Instant;

use crate::Result;
use crate::resp::{Connection, Reply};
use crate::results::DLOCK;
use crate::server::Server;
use command::{Implementation, Names};
use etcd::Etcd;

/// Acquires and releases one lock repeatedly.
pub trait Client: Send {
    /// Waits for the lock by the implementation's own policy. False if it stopped waiting at `end`.
    fn acquire(&mut self, end: Instant) -> Result<bool>;

    fn release(&mut self) -> Result<()>;

    /// Commands sent so far, to all servers. `None` if only the servers know.
    fn commands(&self) -> Option<u64>;
}

/// What the clients of all implementations connect to.
pub struct Servers {
    pub server: Server,
    /// Four independent servers, for quorum locks.
    others: Vec<Server>,
    etcd: Option<Etcd>,
}

/// Lock and identity of a client.
pub struct ClientConfig<'a> {
    servers: &'a Servers,
    key: &'a str,
    /// Of the client, counting from zero.
    number: usize,
    lease_ms: u64,
}

/// How to open a client of one implementation.
pub type Open = fn(&ClientConfig) -> Result<Box<dyn Client>>;

/// Name of an implementation, and how to open its clients.
pub type ClientKind = (&'static str, Open);

impl Servers {
    /// `etcd`: whether its lock is measured, if it is installed.
    pub fn start(etcd: bool) -> Result<Self> {
        Ok(Self {
            others: (0..4).map(|_| Server::start()).collect::<Result<_>>()?,
            etcd: if etcd { Etcd::start()? } else { None },
            ..Self::single()?
        })
    }

    /// Without those that only quorum locks and etcd need.
    pub fn single() -> Result<Self> {
        let server = Server::start()?;
        Ok(Self {
            server,
            others: Vec::new(),
            etcd: None,
        })
    }

    pub fn open(&self, open: Open, key: &str, number: usize, lease_ms: u64) -> Result<Box<dyn Client>> {
        open(&ClientConfig {
            servers: self,
            key,
            number,
            lease_ms,
        })
    }

    pub fn has_etcd(&self) -> bool {
        self.etcd.is_some()
    }

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

impl ClientConfig<'_> {
    fn names(&self, owner: String) -> Names {
        Names {
            key: self.key.into(),
            owner,
            lease_ms: self.lease_ms,
            request_id: 0,
        }
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

/// Permits of each of [`SEMAPHORES`].
pub const PERMITS: usize = 3;

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
