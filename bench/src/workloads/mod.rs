//! The list of workloads, one per file, and what they share.

mod aof;
mod client;
mod cluster;
mod comparison;
pub mod contention;
mod cpu;
mod expiry;
mod guard;
mod hand_over;
mod lock_owner;
mod memory;
mod million;
mod pairs;
mod queue;
mod quorum;
mod replica;
mod servers;
mod shared;
mod stalls;
#[cfg(test)]
mod testing;

use std::path::PathBuf;

pub use quorum::serve as serve_quorum;

use crate::Result;
use crate::results::progress::Progress;
use crate::results::table::Summary;

/// In the order they run.
pub const WORKLOADS: &[Workload] = &[
    Workload {
        name: "cpu",
        about: "CPU and latency of an uncontended lock",
        run: cpu::measure,
    },
    Workload {
        name: "guard",
        about: "a fenced write, compared with a plain one and with a script",
        run: guard::measure,
    },
    Workload {
        name: "memory",
        about: "memory of a held lock",
        run: memory::measure,
    },
    Workload {
        name: "million",
        about: "a million held locks: memory, snapshots, and latency while all leases expire at once",
        run: million::measure,
    },
    Workload {
        name: "aof",
        about: "an uncontended pair with appendfsync everysec and always",
        run: aof::measure,
    },
    Workload {
        name: "replica",
        about: "an uncontended pair with a replica",
        run: replica::measure,
    },
    Workload {
        name: "cluster",
        about: "uncontended pairs on clusters of 1, 2 and 3 primaries",
        run: cluster::measure,
    },
    Workload {
        name: "quorum",
        about: "a lock on a majority of five servers, with one of them stopped or killed",
        run: quorum::measure,
    },
    Workload {
        name: "servers",
        about: "CPU and memory on each server of the test matrix",
        run: servers::measure,
    },
    Workload {
        name: "hand-over",
        about: "from a release until the next client has the lock",
        run: hand_over::measure,
    },
    Workload {
        name: "contention",
        about: "2 to 256 clients contending for a lock",
        run: contention::measure,
    },
    Workload {
        name: "expiry",
        about: "from the expiry of a crashed holder's lease to the next grant",
        run: expiry::measure,
    },
    Workload {
        name: "shared",
        about: "readers and writers, and semaphores",
        run: shared::measure,
    },
    Workload {
        name: "queue",
        about: "ten thousand waiters in one queue",
        run: queue::measure,
    },
    Workload {
        name: "stalls",
        about: "the worst that one request can cost",
        run: stalls::measure,
    },
    Workload {
        name: "client",
        about: "overhead of the Rust client, compared with rslock",
        run: client::measure,
    },
];

pub struct Workload {
    /// For `--only`.
    pub name: &'static str,
    /// What it measures, for the help text.
    pub about: &'static str,
    pub run: fn(&Bench, &mut Summary) -> Result<()>,
}

/// Options of this run.
pub struct Bench {
    /// Fewer rounds and cases.
    pub quick: bool,
    /// The servers of the test matrix, each in its own directory.
    pub servers: Option<PathBuf>,
    pub progress: Progress,
}

impl Bench {
    pub fn rounds(&self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}
