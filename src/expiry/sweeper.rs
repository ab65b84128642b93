//! Removes locks whose leases have expired, and frees the entries of emptied databases.

use dlock_core::Instant;
use dlock_core::expiry::DueLock;

use crate::redis::{Ctx, Flags, Gil, RString, clock};
use crate::txn::Txn;

/// The work of one slice: clients wait no longer than that.
const SLICE_MS: u64 = 1;
/// The pause between slices, in which clients are served.
const PAUSE_MS: u64 = 1;
/// Reading the clock costs as much as removing a small lock: not after each.
const LOCKS_PER_CLOCK_READ: usize = 8;

/// Removes holders whose leases have expired, unless it has just done so. Whether there are more.
pub fn expire_due_locks(ctx: &mut Ctx<'_>, flags: Flags, now: Instant) -> bool {
    let state = ctx.state();
    if state.schedule.next_expiry_slice > now {
        return state.expiry.is_due(now);
    }
    let slice_end = now.after_ms(SLICE_MS);
    loop {
        for _ in 0..LOCKS_PER_CLOCK_READ {
            let Some(due) = ctx.state().expiry.take_due(now) else {
                return false;
            };
            if ctx.select_db(due.db) {
                expire_holders(ctx, flags, &due);
            }
        }
        let until = clock::now();
        if until >= slice_end {
            let state = ctx.state();
            state.schedule.next_expiry_slice = until.after_ms(PAUSE_MS);
            return state.expiry.is_due(now);
        }
    }
}

/// An entry may be wrong by now. Then nothing changes, or the key has another type.
fn expire_holders(ctx: &mut Ctx<'_>, flags: Flags, due: &DueLock) {
    let key = RString::new(due.name.as_bytes());
    if let Ok(mut txn) = Txn::timer(ctx, key.borrow(), flags) {
        txn.expire_holders(due.handle);
        // An error is logged.
        let _ = txn.commit(Ok(()));
    }
}

/// Frees entries of databases that were emptied. Whether there are more.
pub fn lazy_free(gil: &mut Gil<'_>, now: Instant) -> bool {
    let slice_end = now.after_ms(SLICE_MS);
    while gil.state().expiry.free_chunk() {
        if clock::now() >= slice_end {
            return true;
        }
    }
    false
}
