//! Locks that a client has restored (RESTORE, MIGRATE).
//!
//! The server may still reject a value that the module has loaded, because of a wrong byte after it or a TTL in the
//! past, without notice. So loading it has no side effects. The next transition of the lock, the callback that unlinks
//! it, or the timer takes note of a value that was stored.

use dlock_core::{Lock, LockName, LockRef};

use crate::change::lock_value::LockValue;
use crate::redis::{Ctx, RString, ReadKey, Value, clock};
use crate::state::config;
use crate::state::module_state::{STATE, State};
use crate::state::wait_timer;

/// The work of one slice: clients wait no longer than that.
const SLICE_MS: u64 = 1;

/// Checks a lock from a client. The error says why no server could have made it.
pub fn check(state: &State, lock: &Lock) -> Result<(), &'static str> {
    let cx = state.lease_context();
    let fence = lock.holders().iter().map(|holder| holder.fence()).max();
    let lease_ms = lock.holders().iter().map(|holder| cx.lease_ms(holder)).max();
    let fences = &state.engine.fences;
    if !fences.is_plausible(fence.unwrap_or(0), clock::wall_clock()) {
        Err(
            "a lock with a fencing token more than a year ahead of this server's, rejected: check the clocks of both",
        )
    } else if lease_ms > Some(config::MAX_MS.unsigned_abs()) {
        Err("a lock with a lease of more than ten years, rejected: no server grants that")
    } else {
        Ok(())
    }
}

/// Takes note of the locks that were stored, a slice of them.
pub fn track(ctx: &mut Ctx<'_>) {
    let slice_end = clock::now().after_ms(SLICE_MS);
    while clock::now() < slice_end {
        let Some(LockName { db, key }) = ctx.state().restored.pop() else {
            return;
        };
        if ctx.select_db(db) {
            let name = RString::new(&key);
            let mut open = ReadKey::<LockValue>::open(ctx, name.borrow());
            if let (Value::Ours(value), state) = open.value_and(&STATE) {
                value.track(state, LockRef::new(db, &key));
            }
        }
    }
    wait_timer::arm(ctx);
}

/// All databases are about to be emptied, without a word about each lock.
pub fn track_all(ctx: &mut Ctx<'_>) {
    while !ctx.state().restored.is_empty() {
        track(ctx);
    }
}
