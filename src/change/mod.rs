//! A change of one lock: the value under its key, the transition, and its effects.

use std::ffi::CStr;

pub mod lock_change;
pub mod lock_value;
pub mod perform;
pub mod readers;
pub mod restored;

/// The command that carries a change of a lock to replicas and the append-only file.
pub const APPLY: &CStr = c"DLOCK.APPLY";
