//! Active expiry: removes locks whose leases have expired, as the server's active expire cycle removes keys, and frees
//! the entries of emptied databases.

use dlock_core::Instant;
use dlock_core::cluster::slots::slot_of;
use dlock_core::expiry::DueLock;

use crate::background::gate::RETRY_MS;
use crate::background::pass::Pass;
use crate::change::lock_change::{Cause, decide};
use crate::change::lock_value::LockValue;
use crate::redis::{Ctx, Flags, Gil, RString, ReadKey, Value};
use crate::state::clock;
use crate::state::error::Error;
use crate::state::module_state::{HasState, STATE};

const SLICE_MS: u64 = 1;
/// When a lock in a slot of another node is looked at again.
const NOT_OWNED_RETRY_MS: u64 = 1_000;
/// Reading the clock costs as much as removing a small lock: not after each.
const LOCKS_PER_CLOCK_READ: usize = 8;

/// Removes holders whose leases have expired, in slices. Returns whether there are more.
pub fn expire_due_locks(ctx: &mut Ctx<'_>, pass: &Pass, flags: Flags, now: Instant) -> bool {
    let slice = pass.slice(SLICE_MS);
    loop {
        for _ in 0..LOCKS_PER_CLOCK_READ {
            let Some(due) = ctx.state().expiry.take_due(now) else {
                return false;
            };
            if !ctx.select_db(due.db) {
                continue;
            }
            if flags.is_cluster() && !is_owned(ctx, &due) {
                postpone(ctx, &due, now.after_ms(NOT_OWNED_RETRY_MS));
            } else {
                expire_holders(ctx, flags, &due);
            }
        }
        if slice.is_over() {
            return ctx.state().expiry.is_due(now);
        }
    }
}

/// Whether the lock is in a cluster slot of this node. One in another node's slot is a leftover of a migration, or on its
/// way here: its own node expires it.
fn is_owned(gil: &mut Gil<'_>, due: &DueLock) -> bool {
    let slot = slot_of(due.name.as_bytes());
    gil.state().server.cluster().0.slots.owned.contains(slot)
}

fn postpone(ctx: &mut Ctx<'_>, due: &DueLock, at: Instant) {
    let name = RString::new(due.name.as_bytes());
    let mut key = ReadKey::<LockValue>::open(ctx, name.borrow());
    if let (Value::Ours(value), state) = key.value_and(&STATE) {
        value.postpone_expiry(state, due, at);
    }
}

/// An entry may be wrong by now. Then nothing changes, or the key has another type.
fn expire_holders(ctx: &mut Ctx<'_>, flags: Flags, due: &DueLock) {
    let key = RString::new(due.name.as_bytes());
    let cause = Cause::Expiry(due.handle);
    let outcome = decide(ctx, key.borrow(), flags, cause, |transition| {
        transition.expire_holders();
        Ok(())
    });
    if let Err(Error::Saving) = outcome {
        postpone(ctx, due, clock::now().after_ms(RETRY_MS));
    }
}

/// Frees entries of databases that were emptied. Whether there are more.
pub fn lazy_free(gil: &mut Gil<'_>, pass: &Pass) -> bool {
    let slice = pass.slice(SLICE_MS);
    while gil.state().expiry.free_chunk() {
        if slice.is_over() {
            return true;
        }
    }
    false
}
