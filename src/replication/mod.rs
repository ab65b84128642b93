//! What replicas and the append-only file get: changes of locks, and checkpoints of what is no lock.

use std::ffi::CStr;

pub mod apply;
pub mod checkpoint;
pub mod targets;

/// The command that carries a change of a lock.
pub const APPLY: &CStr = c"DLOCK.APPLY";
