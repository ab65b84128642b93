//! The engine's host in a server: keys, replication, clients and clocks of the server, behind the traits of
//! [`dlock_core::engine`].

pub mod blocked_clients;
pub mod config;
mod ctx;
mod error;
mod location;
pub mod lock_value;
pub mod policy;
mod readers;
mod replica_offsets;
pub mod reply;
pub mod snapshot_clock;
pub mod state;
mod write_check;

pub use ctx::MESSAGE_TYPE;
pub use write_check::PROBE;

use std::ffi::CStr;

/// The command that carries a change of a lock to replicas and the append-only file.
pub const APPLY: &CStr = c"DLOCK.APPLY";

/// The command that carries a checkpoint.
pub const SYNC: &CStr = c"DLOCK.SYNC";

/// The keyword of a checkpoint whose grace period ends after that time, also where another one said later.
pub const AT_MOST: &CStr = c"ATMOST";
