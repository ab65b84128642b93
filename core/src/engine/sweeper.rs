//! Active expiry: removes locks whose leases have expired, as the server's active expire cycle removes keys, and frees
//! the entries of emptied databases.

use super::error::Error;
use super::gate::RETRY_MS;
use super::host::{Flags, Host, Process, Stored};
use super::lock_change::{Cause, decide};
use super::pass::Pass;
use crate::cluster::slots::slot_of;
use crate::expiry::DueLock;
use crate::time::Instant;

const SLICE_MS: u64 = 1;
/// When a lock in a slot of another node is looked at again. There may be as many as a migration has left, for ever.
const NOT_OWNED_RETRY_MS: u64 = 10_000;
/// Reading the clock costs as much as removing a small lock: not after each.
const LOCKS_PER_CLOCK_READ: usize = 8;

/// Removes holders whose leases have expired, in slices. Returns whether there are more.
pub(super) fn expire_due_locks<H: Host>(host: &mut H, pass: &Pass, flags: Flags, now: Instant) -> bool {
    let slice = pass.slice(SLICE_MS, host);
    loop {
        for _ in 0..LOCKS_PER_CLOCK_READ {
            let Some(due) = host.state().expiry.take_due(now) else {
                return false;
            };
            if !host.select_db(due.db) {
                continue;
            }
            if flags.is_cluster && !is_owned(host, &due) {
                postpone(host, &due, now.after_ms(NOT_OWNED_RETRY_MS));
            } else {
                expire_holders(host, flags, &due);
            }
        }
        if slice.is_over(host) {
            return host.state().expiry.is_due(now);
        }
    }
}

/// Whether the lock is in a cluster slot of this node. One in another node's slot is a leftover of a migration, or on its
/// way here: its own node expires it.
fn is_owned(process: &mut impl Process, due: &DueLock) -> bool {
    let slot = slot_of(due.name.as_bytes());
    process.state().server.cluster().0.slots.owned.contains(slot)
}

fn postpone<H: Host>(host: &mut H, due: &DueLock, at: Instant) {
    let name = H::make_name(due.name.as_bytes());
    host.read(H::name(&name), |stored, state| {
        if let Stored::Lock(value) = stored {
            value.postpone_expiry(state, due, at);
        }
    });
}

/// An entry may be wrong by now. Then nothing changes, or the key has another type.
fn expire_holders<H: Host>(host: &mut H, flags: Flags, due: &DueLock) {
    let key = H::make_name(due.name.as_bytes());
    let cause = Cause::Expiry(due.handle);
    let outcome = decide(host, H::name(&key), flags, cause, |transition| {
        transition.expire_holders();
        Ok(())
    });
    if let Err(Error::Saving) = outcome {
        let retry = host.now().after_ms(RETRY_MS);
        postpone(host, due, retry);
    }
}

/// Frees entries of databases that were emptied. Whether there are more.
pub(super) fn lazy_free(process: &mut impl Process, pass: &Pass) -> bool {
    let slice = pass.slice(SLICE_MS, process);
    while process.state().expiry.free_chunk() {
        if slice.is_over(process) {
            return true;
        }
    }
    false
}
