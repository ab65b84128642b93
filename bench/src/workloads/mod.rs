//! The workloads, one per file.

mod client;
mod contention;
mod failover;
mod guard;
mod hand_over;
mod lock_owner;
mod pair;
mod process;
mod synchronous;

use crate::error::Result;
use crate::results::Results;
use crate::scale::Scale;

pub struct Workload {
    /// For `--only`, and in results.csv.
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(Scale, &mut Results) -> Result<()>,
}

/// In the order in which they run.
pub const WORKLOADS: [Workload; 8] = [
    workload("client", "the Rust client", client::measure),
    workload("pair", "an uncontended lock: server CPU, latency", pair::measure),
    workload("guard", "a fenced write", guard::measure),
    workload(
        "hand-over",
        "from a release until the next client has the lock",
        hand_over::measure,
    ),
    workload(
        "contention",
        "2 to 256 clients that contend for a lock",
        contention::measure,
    ),
    workload(
        "failover",
        "a million waiters whose primary is killed",
        failover::measure,
    ),
    workload(
        "synchronous",
        "a free lock whose grants replicas have",
        synchronous::free_lock,
    ),
    workload(
        "synchronous-failover",
        "for how long a failover stops grants",
        synchronous::failover,
    ),
];

const fn workload(
    name: &'static str,
    about: &'static str,
    run: fn(Scale, &mut Results) -> Result<()>,
) -> Workload {
    Workload { name, about, run }
}
