//! What is stored under a key, and how the engine learns that it is: a lock that a command puts there, loads or takes
//! away is known to the expiry index from then on.

use std::cell::Cell;

use super::state::EngineState;
use crate::expiry::{DueLock, ExpiryHandle};
use crate::fence::{Fence, WallClock};
use crate::lock::Lock;
use crate::names::LockNameRef;
use crate::time::{Instant, LeaseClock};

/// A value: a lock, and where the expiry index has it. 64 bytes.
#[derive(Clone)]
pub struct LockValue {
    /// The lock.
    pub lock: Lock,
    /// A cell, because `unlink` gets a shared reference.
    expiry: Cell<ExpiryHandle>,
}

impl Default for LockValue {
    fn default() -> Self {
        Self::new(Lock::default())
    }
}

impl LockValue {
    /// A value that nobody has taken note of yet.
    pub fn new(lock: Lock) -> Self {
        Self {
            lock,
            expiry: Cell::new(ExpiryHandle::NONE),
        }
    }

    /// The expiry index has taken this entry out.
    pub(super) fn clear_expiry_if(&self, due: ExpiryHandle) {
        if self.expiry.get() == due {
            self.expiry.set(ExpiryHandle::NONE);
        }
    }

    /// Re-inserts an entry that [`crate::expiry::ExpiryIndex::take_due`] removed.
    pub(super) fn postpone_expiry(&self, state: &mut EngineState, due: &DueLock, at: Instant) {
        if self.expiry.get() == due.handle {
            self.expiry
                .set(state.expiry.insert(due.db, due.name.as_bytes(), at));
        }
    }

    /// Has the sweeper visit the lock when its first lease expires. An earlier visit stays as it is.
    pub(super) fn schedule_expiry(&self, state: &mut EngineState, name: LockNameRef<'_>, clock: LeaseClock) {
        let Some(at) = self.lock.first_lease_end(clock) else {
            return;
        };
        let old = self.expiry.get();
        if old.is_indexed() {
            if old.covers(at) {
                return;
            }
            state.expiry.remove(name.db, name.key, old);
        }
        self.expiry.set(state.expiry.insert(name.db, name.key, at));
    }

    /// Adopts a value that was loaded, or put under another name, unless that has been done: its fences and leases are
    /// known from now on, and when it expires.
    pub fn adopt(&self, state: &mut EngineState, name: LockNameRef<'_>, now: Instant) {
        if self.expiry.get() == ExpiryHandle::NONE {
            state.server.observe_lock(&self.lock, now);
            state.server.wait_table.recheck_holders(name);
            self.schedule_expiry(state, name, state.server.clock(now));
        }
    }

    /// The lock is free, and its key is about to be deleted.
    pub(super) fn cancel_expiry(&self, state: &mut EngineState, name: LockNameRef<'_>) {
        let old = self.expiry.replace(ExpiryHandle::NONE);
        state.expiry.remove(name.db, name.key, old);
    }
}

/// Ten years. Together with the range of the clock it keeps every sum of times far from overflow.
pub const MAX_MS: u64 = 10 * 366 * 24 * 60 * 60 * 1000;

/// Checks a lock from a client, by its largest fence and its longest lease. The error says why no server could have
/// made it.
pub(super) fn check_plausible(
    state: &EngineState,
    wall_clock: WallClock,
    fence: Fence,
    lease_ms: u64,
) -> Result<(), &'static str> {
    if !state.server.fences.is_plausible(fence, wall_clock) {
        Err(
            "rejected a lock whose fencing token is more than a year ahead of this server's: check the clocks of both",
        )
    } else if lease_ms > MAX_MS {
        Err("rejected a lock with a lease of more than ten years: no server grants that")
    } else {
        Ok(())
    }
}
