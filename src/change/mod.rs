//! A change of one lock: the value under its key, the transition, and what follows from it.

use std::ffi::CStr;

pub mod blocked_clients;
pub mod lock_value;
pub mod restored;
pub mod txn;

/// The command that carries a change of a lock to replicas and the append-only file.
pub const APPLY: &CStr = c"DLOCK.APPLY";
