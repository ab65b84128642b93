//! Locks that a client has restored (RESTORE, MIGRATE).
//!
//! The server may still reject a value that the module has loaded, because of a wrong byte after it or a TTL in the
//! past, without notice. So loading it has no side effects. The next transition of the lock, the callback that unlinks
//! it, or the timer takes note of a value that was stored.

use super::host::{Host, Stored};
use super::pass::Slice;
use super::wait_timer;
use crate::collections::Shrink;
use crate::names::LockName;

const SLICE_MS: u64 = 1;

/// Adopts the locks that were stored, a slice of them.
pub(super) fn adopt_stored<H: Host>(host: &mut H, slice: &Slice) {
    while !slice.is_over(host) {
        let restored = &mut host.state().restored;
        let Some(name) = restored.pop() else {
            return;
        };
        restored.shrink_if_sparse();
        if host.select_db(name.db) {
            adopt(host, &name);
        }
    }
    wait_timer::arm(host);
}

/// All databases are about to be emptied, without a word about each lock.
pub fn adopt_all(host: &mut impl Host) {
    while !host.state().restored.is_empty() {
        let slice = Slice::of_ms(SLICE_MS, host);
        adopt_stored(host, &slice);
    }
}

fn adopt<H: Host>(host: &mut H, name: &LockName) {
    let (key, now) = (H::make_name(&name.key), host.now());
    host.read(H::name(&key), |stored, state| {
        if let Stored::Lock(value) = stored {
            value.adopt(state, name.as_ref(), now);
        }
    });
}
