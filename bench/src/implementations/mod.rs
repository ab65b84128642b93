//! Implementations of a lock, each with the commands and the retry policy of its original, cited in its file.
//!
//! They are compared in two ways: by the commands for an uncontended lock, and as clients that wait for a contended
//! one.

pub mod command;
mod counting;
pub mod delifeq;
pub mod dlock;
pub mod etcd;
pub mod lua_pair;
mod polling;
pub mod redisson;
pub mod redisson_shared;
pub mod redsync;
pub mod rslock;
pub mod set_and_del;
pub mod set_and_lua;

use std::time::Instant;

use crate::Result;
use crate::implementations::command::Implementation;
use crate::resp::{Connection, Reply};
use crate::results::DLOCK;
use crate::server::Server;
use etcd::Etcd;

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
    pub server: &'a Server,
    /// Four independent servers, for quorum locks.
    pub other_servers: &'a [Server],
    pub etcd: Option<&'a Etcd>,
    pub key: &'a str,
    /// Of the client, counting from zero.
    pub number: usize,
    pub lease_ms: u64,
}

/// How to open a client of one implementation.
#[derive(Clone, Copy)]
pub struct ClientKind {
    pub name: &'static str,
    pub open: Open,
}

pub type Open = fn(&ClientConfig) -> Result<Box<dyn Client>>;

/// How to open readers and writers of one implementation.
#[derive(Clone, Copy)]
pub struct ReadWriteLock {
    pub name: &'static str,
    pub reader: Open,
    pub writer: Open,
}

/// For [`ClientConfig::other_servers`].
pub fn start_other_servers() -> Result<Vec<Server>> {
    (0..4).map(|_| Server::start()).collect()
}

/// Implementations whose clients wait for a contended lock, DLOCK first. `etcd`: whether it is installed.
pub fn client_kinds(server: &Server, etcd: bool) -> Result<Vec<ClientKind>> {
    let mut kinds = vec![
        ClientKind {
            name: DLOCK,
            open: dlock::open,
        },
        ClientKind {
            name: "re-entrant Lua, 10 ms polling",
            open: lua_pair::open,
        },
        ClientKind {
            name: "redsync, 1 server",
            open: redsync::open,
        },
        ClientKind {
            name: "redsync, 5 servers",
            open: redsync::open_quorum,
        },
        ClientKind {
            name: "Redisson's RLock",
            open: redisson::open,
        },
        ClientKind {
            name: "rslock",
            open: rslock::open,
        },
    ];
    if has_command(&mut server.connect()?, delifeq::COMMAND)? {
        kinds.push(ClientKind {
            name: "SET NX + DELIFEQ, 10 ms polling",
            open: delifeq::open,
        });
    }
    if etcd {
        kinds.push(ClientKind {
            name: "etcd's lock RPC",
            open: etcd::open,
        });
    }
    Ok(kinds)
}

pub const READ_WRITE_LOCKS: [ReadWriteLock; 2] = [
    ReadWriteLock {
        name: DLOCK,
        reader: dlock::open_shared,
        writer: dlock::open,
    },
    ReadWriteLock {
        name: "Redisson's RReadWriteLock",
        reader: redisson_shared::open_reader,
        writer: redisson_shared::open_writer,
    },
];

/// Permits of each of [`SEMAPHORES`].
pub const PERMITS: usize = 3;

pub const SEMAPHORES: [ClientKind; 2] = [
    ClientKind {
        name: DLOCK,
        open: dlock::open_semaphore,
    },
    ClientKind {
        name: "Redisson's RSemaphore",
        open: redisson_shared::open_semaphore,
    },
];

/// Implementations by their commands, DLOCK first. Loads their scripts.
pub fn all(connection: &mut Connection) -> Result<Vec<(&'static str, Implementation)>> {
    let mut implementations = vec![
        (DLOCK, Implementation::dlock()),
        ("SET NX PX + DEL", Implementation::set_and_del()),
        (
            "SET NX PX + Lua release",
            set_and_lua::implementation(connection)?,
        ),
        ("re-entrant Lua by EVALSHA", lua_pair::by_evalsha(connection)?),
        ("re-entrant Lua by EVAL", lua_pair::by_eval()),
        ("Redisson's RLock", redisson::implementation(connection)?),
    ];
    if has_command(connection, delifeq::COMMAND)? {
        implementations.push(("SET NX PX + DELIFEQ", delifeq::implementation()));
    }
    Ok(implementations)
}

/// Why an implementation is not measured, one line each.
pub fn skipped(connection: &mut Connection, etcd: bool) -> Result<Vec<String>> {
    let mut skipped = Vec::new();
    if !has_command(connection, delifeq::COMMAND)? {
        skipped
            .push("SET NX + DELIFEQ is not measured: this server has no DELIFEQ (Valkey 9 and later)".into());
    }
    if !etcd {
        skipped.push(
            "etcd is not measured: it is not installed (Debian: etcd-server; or set DLOCK_ETCD)".into(),
        );
    }
    Ok(skipped)
}

fn has_command(connection: &mut Connection, name: &str) -> Result<bool> {
    match connection.call(&["COMMAND", "INFO", name])? {
        Reply::Array(commands) => Ok(commands.iter().any(|command| *command != Reply::Null)),
        reply => Err(format!("COMMAND INFO answered {reply:?}").into()),
    }
}

/// Returns the SHA1 for EVALSHA.
pub fn load_script(connection: &mut Connection, script: &str) -> Result<String> {
    match connection.call(&["SCRIPT", "LOAD", script])? {
        Reply::Bulk(sha) => Ok(String::from_utf8(sha)?),
        reply => Err(format!("SCRIPT LOAD answered {reply:?}").into()),
    }
}

#[cfg(test)]
mod tests;
