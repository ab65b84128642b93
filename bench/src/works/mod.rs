//! What is measured, one file a work; what each is given, and the list of them.

mod aof;
mod client;
mod cluster;
pub mod contention;
mod cpu;
mod expiry;
mod handover;
mod memory;
mod million;
mod pairs;
mod queue;
mod redlock;
mod replica;
mod servers;
mod shared;
#[cfg(test)]
mod testing;

use std::path::PathBuf;

use crate::Result;
use crate::results::progress::Progress;
use crate::results::table::Summary;

/// In the order in which they run.
pub const WORKS: &[Work] = &[
    Work {
        name: "cpu",
        about: "what a lock costs that nobody else wants",
        run: cpu::measure,
    },
    Work {
        name: "memory",
        about: "what a held lock takes in the server's memory",
        run: memory::measure,
    },
    Work {
        name: "million",
        about: "a million held locks: memory, snapshots, and what clients notice when all end at once",
        run: million::measure,
    },
    Work {
        name: "aof",
        about: "an uncontended pair that the server logs, everysec and always",
        run: aof::measure,
    },
    Work {
        name: "replica",
        about: "an uncontended pair on a server with a replica",
        run: replica::measure,
    },
    Work {
        name: "cluster",
        about: "uncontended pairs on a cluster of 1, 2 and 3 primaries",
        run: cluster::measure,
    },
    Work {
        name: "redlock",
        about: "a lock on five servers, one of them slow, dead or silent",
        run: redlock::measure,
    },
    Work {
        name: "servers",
        about: "an uncontended pair and memory on each server of the test matrix",
        run: servers::measure,
    },
    Work {
        name: "hand-over",
        about: "from a release until the next client has the lock",
        run: handover::measure,
    },
    Work {
        name: "contention",
        about: "a lock that 2 to 256 clients want",
        run: contention::measure,
    },
    Work {
        name: "expiry",
        about: "from the end of a vanished holder's lease to the next grant",
        run: expiry::measure,
    },
    Work {
        name: "shared",
        about: "readers and writers, and semaphores",
        run: shared::measure,
    },
    Work {
        name: "queue",
        about: "ten thousand clients that wait for one lock",
        run: queue::measure,
    },
    Work {
        name: "client",
        about: "what the Rust client adds to its commands, beside rslock",
        run: client::measure,
    },
];

/// One thing that is measured: a row of the list above.
pub struct Work {
    /// For `--only`.
    pub name: &'static str,
    /// What it measures, for the list in the help.
    pub about: &'static str,
    pub run: fn(&Bench, &mut Summary) -> Result<()>,
}

/// What a work needs to know of this run.
pub struct Bench {
    /// Always a release build.
    pub module: PathBuf,
    /// A first look: fewer rounds, and fewer cases where there are many.
    pub quick: bool,
    /// Where the servers of the test matrix are, each in a folder of its own.
    pub servers: Option<PathBuf>,
    pub progress: Progress,
}

impl Bench {
    /// How many rounds to do: in a full run, and for a first look.
    pub fn rounds(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}
