//! Locks that left their name alive. RENAME and MOVE put a value under another name, but the module only learns that it
//! has left the first one.
//!
//! A value that is unlinked is untracked. It nearly always is freed a moment later. As long as one is not, it may be
//! under another name, and the keyspace is scanned until all are found.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Atomic: values of emptied databases may be freed on another thread.
static UNTRACKED: AtomicI64 = AtomicI64::new(0);
static MOVES: AtomicU64 = AtomicU64::new(0);

/// A value has left its name.
pub fn inc() {
    UNTRACKED.fetch_add(1, Ordering::Relaxed);
    note_move();
}

/// Untracked values may be where a scan has been already.
pub fn note_move() {
    MOVES.fetch_add(1, Ordering::Relaxed);
}

/// The number of moves so far.
pub fn moves() -> u64 {
    MOVES.load(Ordering::Relaxed)
}

/// Such a value was freed, or found under another name.
pub fn dec() {
    UNTRACKED.fetch_sub(1, Ordering::Relaxed);
}

pub fn any() -> bool {
    UNTRACKED.load(Ordering::Relaxed) > 0
}
