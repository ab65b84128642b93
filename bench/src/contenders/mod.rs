//! The contenders, each by its own commands and its own rule of waiting, which its file cites.
//!
//! They are compared in two ways: by the commands of a lock that nobody else wants, and as clients that
//! wait for one.

pub mod command;
pub mod delifeq;
pub mod dlock;
pub mod etcd;
pub mod lua_pair;
pub mod redisson;
pub mod redisson_shared;
pub mod redsync;
pub mod rslock;
pub mod set_and_del;
pub mod set_and_lua;
mod wire;

use std::path::Path;
use std::time::Instant;

use crate::Result;
use crate::contenders::command::Contender;
use crate::resp::{Connection, Reply};
use crate::results::table::DLOCK;
use crate::server::Server;
use etcd::Etcd;

/// Somebody who takes one lock again and again.
pub trait Client: Send {
    /// Waits by the contender's rule. False when `end` came first: then it may have given up.
    fn acquire(&mut self, end: Instant) -> Result<bool>;

    fn release(&mut self) -> Result<()>;

    /// How many commands it has sent, to all servers. None where only the servers can tell.
    fn commands(&self) -> Option<u64>;
}

/// Which lock a client wants, and as whom.
pub struct Wanted<'a> {
    pub server: &'a Server,
    /// Independent of that one, for who wants a majority of five.
    pub others: &'a [Server],
    pub etcd: Option<&'a Etcd>,
    pub key: &'a str,
    /// Of the client, from zero on.
    pub number: usize,
    pub lease_ms: u64,
}

/// One that can wait.
#[derive(Clone, Copy)]
pub struct Waiting {
    pub name: &'static str,
    pub open: Open,
}

pub type Open = fn(&Wanted) -> Result<Box<dyn Client>>;

/// Readers of a lock and its writers.
#[derive(Clone, Copy)]
pub struct Shared {
    pub name: &'static str,
    pub reader: Open,
    pub writer: Open,
}

/// Further ones for [`Wanted::others`].
pub fn others(module: &Path) -> Result<Vec<Server>> {
    (0..4).map(|_| Server::start(module)).collect()
}

/// Who can wait for a lock. `etcd`: whether it is there.
pub fn waiting(server: &Server, etcd: bool) -> Result<Vec<Waiting>> {
    let mut waiting = vec![
        Waiting {
            name: DLOCK,
            open: dlock::open,
        },
        Waiting {
            name: "re-entrant Lua, 10 ms polling",
            open: lua_pair::open,
        },
        Waiting {
            name: "redsync's rules, 1 server",
            open: redsync::open,
        },
        Waiting {
            name: "redsync's rules, 5 servers",
            open: redsync::open_quorum,
        },
        Waiting {
            name: "Redisson's RLock",
            open: redisson::open,
        },
        Waiting {
            name: "rslock",
            open: rslock::open,
        },
    ];
    if has_command(&mut server.connect()?, delifeq::COMMAND)? {
        waiting.push(Waiting {
            name: "SET NX + DELIFEQ, 10 ms polling",
            open: delifeq::open,
        });
    }
    if etcd {
        waiting.push(Waiting {
            name: "etcd's lock RPC",
            open: etcd::open,
        });
    }
    Ok(waiting)
}

pub const SHARED: [Shared; 2] = [
    Shared {
        name: DLOCK,
        reader: dlock::open_shared,
        writer: dlock::open,
    },
    Shared {
        name: "Redisson's RReadWriteLock",
        reader: redisson_shared::open_reader,
        writer: redisson_shared::open_writer,
    },
];

/// How many a semaphore of [`SEMAPHORES`] lets in.
pub const PERMITS: usize = 3;

pub const SEMAPHORES: [Waiting; 2] = [
    Waiting {
        name: DLOCK,
        open: dlock::open_semaphore,
    },
    Waiting {
        name: "Redisson's RSemaphore",
        open: redisson_shared::open_semaphore,
    },
];

/// By their commands alone. Their scripts are loaded. DLOCK comes first.
pub fn by_commands(connection: &mut Connection) -> Result<Vec<(&'static str, Contender)>> {
    let mut contenders = vec![
        (DLOCK, Contender::dlock()),
        ("SET NX PX + DEL", Contender::set_and_del()),
        ("SET NX PX + Lua release", set_and_lua::contender(connection)?),
        ("re-entrant Lua by EVALSHA", lua_pair::by_evalsha(connection)?),
        ("re-entrant Lua by EVAL", lua_pair::by_eval()),
        ("Redisson's RLock", redisson::contender(connection)?),
    ];
    if has_command(connection, delifeq::COMMAND)? {
        contenders.push(("SET NX PX + DELIFEQ", delifeq::contender()));
    }
    Ok(contenders)
}

/// Why somebody does not take part, in a line.
pub fn missing(connection: &mut Connection, etcd: bool) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    if !has_command(connection, delifeq::COMMAND)? {
        missing.push("SET NX + DELIFEQ takes no part: this server has no DELIFEQ (Valkey 9 has)".into());
    }
    if !etcd {
        missing
            .push("etcd takes no part: it is not installed (Debian: etcd-server; or set DLOCK_ETCD)".into());
    }
    Ok(missing)
}

fn has_command(connection: &mut Connection, name: &str) -> Result<bool> {
    match connection.call(&["COMMAND", "INFO", name])? {
        Reply::Array(known) => Ok(known.iter().any(|command| *command != Reply::Null)),
        reply => Err(format!("COMMAND INFO answered {reply:?}").into()),
    }
}

/// The SHA1 by which EVALSHA calls it.
fn load_script(connection: &mut Connection, script: &str) -> Result<String> {
    match connection.call(&["SCRIPT", "LOAD", script])? {
        Reply::Bulk(sha) => Ok(String::from_utf8(sha)?),
        reply => Err(format!("SCRIPT LOAD answered {reply:?}").into()),
    }
}

#[cfg(test)]
mod tests;
