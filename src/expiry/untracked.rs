//! Locks that left their name alive: RENAME and MOVE put a value under another name and tell only that
//! it has left the first one.
//!
//! A value that is unlinked becomes a stray; it nearly always is freed a moment later. As long as one is
//! not, it may stand under another name, and the sweep walks the keyspace until all are found.

use std::sync::atomic::{AtomicI64, Ordering};

/// Atomic: values of emptied databases may be freed on another thread.
static STRAYS: AtomicI64 = AtomicI64::new(0);

/// A value has left its name.
pub fn lost() {
    STRAYS.fetch_add(1, Ordering::Relaxed);
}

/// A stray was freed, or found under another name.
pub fn settled() {
    STRAYS.fetch_sub(1, Ordering::Relaxed);
}

pub fn any() -> bool {
    STRAYS.load(Ordering::Relaxed) > 0
}
