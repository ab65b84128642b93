//! Locks that were unlinked from their name, but not freed. RENAME and MOVE put a value under another name, but the
//! module only gets the callback that unlinks it from the old one.
//!
//! A value that is unlinked is untracked. Nearly always it is freed at once. Until then it may be under another name,
//! and the keyspace is scanned until no value is untracked.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Atomic: values of emptied databases may be freed on another thread.
static UNTRACKED: AtomicI64 = AtomicI64::new(0);
static MOVES: AtomicU64 = AtomicU64::new(0);

/// A value was unlinked.
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
