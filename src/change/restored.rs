//! Locks that a client has restored (RESTORE, MIGRATE).
//!
//! The server may still reject a value that the module has loaded, because of a wrong byte after it or a TTL in the
//! past, without notice. So loading it has no side effects. The next transition of the lock, the callback that unlinks
//! it, or the timer takes note of a value that was stored.

use dlock_core::{LockName, LockNameRef, Shrink as _};

use crate::change::lock_value::LockValue;
use crate::redis::{Ctx, RString, ReadKey, Value};
use crate::state::clock::Slice;
use crate::state::module_state::{HasState, STATE};
use crate::state::wait_timer;

const SLICE_MS: u64 = 1;

/// Takes note of the locks that were stored, a slice of them.
pub fn observe_stored(ctx: &mut Ctx<'_>, slice: &Slice) {
    while !slice.is_over() {
        let restored = &mut ctx.state().restored;
        let Some(LockName { db, key }) = restored.pop() else {
            return;
        };
        restored.shrink_if_sparse();
        if ctx.select_db(db) {
            let name = RString::new(&key);
            let mut open = ReadKey::<LockValue>::open(ctx, name.borrow());
            if let (Value::Ours(value), state) = open.value_and(&STATE) {
                value.observe(state, LockNameRef::new(db, &key));
            }
        }
    }
    wait_timer::arm(ctx);
}

/// All databases are about to be emptied, without a word about each lock.
pub fn observe_all(ctx: &mut Ctx<'_>) {
    while !ctx.state().restored.is_empty() {
        observe_stored(ctx, &Slice::of_ms(SLICE_MS));
    }
}
