//! The list of workloads, one per file, and what they share.

mod aof;
mod bench;
mod client;
mod cluster;
mod comparison;
pub mod contention;
mod cpu;
mod expiry;
mod guard;
mod hand_over;
mod inboxes;
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

use crate::error::Result;
use crate::results::table::Summary;
pub use bench::Bench;
pub use quorum::serve as serve_quorum;

/// In the order they run.
pub const WORKLOADS: &[Workload] = &[
    Workload::new("cpu", "CPU and latency of an uncontended lock", cpu::measure),
    Workload::new(
        "guard",
        "a fenced write, compared with a plain one and with a script",
        guard::measure,
    ),
    Workload::new("memory", "memory of a held lock", memory::measure),
    Workload::new(
        "million",
        "a million held locks: memory, snapshots, and latency while all leases expire at once",
        million::measure,
    ),
    Workload::new(
        "aof",
        "an uncontended pair with appendfsync everysec and always",
        aof::measure,
    ),
    Workload::new("replica", "an uncontended pair with a replica", replica::measure),
    Workload::new(
        "cluster",
        "uncontended pairs on clusters of 1, 2 and 3 primaries",
        cluster::measure,
    ),
    Workload::new(
        "quorum",
        "a lock on a majority of five servers, with one of them stopped or killed",
        quorum::measure,
    ),
    Workload::new(
        "servers",
        "CPU and memory on each server of the test matrix",
        servers::measure,
    ),
    Workload::new(
        "hand-over",
        "from a release until the next client has the lock",
        hand_over::measure,
    ),
    Workload::new(
        "contention",
        "2 to 256 clients contending for a lock",
        contention::measure,
    ),
    Workload::new(
        "expiry",
        "from the expiry of a crashed holder's lease to the next grant",
        expiry::measure,
    ),
    Workload::new("shared", "readers and writers, and semaphores", shared::measure),
    Workload::new("queue", "ten thousand waiters in one queue", queue::measure),
    Workload::new(
        "inboxes",
        "waiters of one process on two connections, compared with BLOCK",
        inboxes::measure,
    ),
    Workload::new("stalls", "the worst that one request can cost", stalls::measure),
    Workload::new(
        "client",
        "overhead of the Rust client, compared with rslock",
        client::measure,
    ),
];

pub struct Workload {
    /// For `--only`.
    pub name: &'static str,
    /// What it measures, for the help text.
    pub about: &'static str,
    pub run: fn(&Bench, &mut Summary) -> Result<()>,
}

impl Workload {
    const fn new(
        name: &'static str,
        about: &'static str,
        run: fn(&Bench, &mut Summary) -> Result<()>,
    ) -> Self {
        Self { name, about, run }
    }
}
