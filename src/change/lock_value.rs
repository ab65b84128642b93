//! The data type `dist-lock`: what the server does with a lock as a value.

use std::cell::Cell;
use std::ffi::c_int;

use dlock_core::expiry::{DueLock, ExpiryHandle};
use dlock_core::{
    Checkpoint, Fence, Instant, LeaseClock, Lock, LockName, LockNameRef, MAX_FENCE, decode_lock, encode_lock,
};

use crate::change::APPLY;
use crate::redis::{DataType, Digest, Flags, Gil, Io, NativeType, Payload, RStr};
use crate::state::module_state::{HasState, ModuleState};
use crate::state::{clock, config, snapshot_clock, wait_timer};

/// The encoding of values in RDB files and DUMP payloads.
const ENCODING_VERSION: c_int = 1;

/// The version of the record in the auxiliary data: fence counter, grace left in milliseconds.
const AUX_VERSION: u64 = 1;

pub static LOCK_TYPE: NativeType<LockValue> = NativeType::new("dist-lock", ENCODING_VERSION);

/// A value: a lock, and where the expiry index has it. 64 bytes.
pub struct LockValue {
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
    fn new(lock: Lock) -> Self {
        Self {
            lock,
            expiry: Cell::new(ExpiryHandle::NONE),
        }
    }

    /// The expiry index has taken this entry out.
    pub fn clear_expiry_if(&self, due: ExpiryHandle) {
        if self.expiry.get() == due {
            self.expiry.set(ExpiryHandle::NONE);
        }
    }

    /// Re-inserts an entry that [`dlock_core::expiry::ExpiryIndex::take_due`] removed.
    pub fn postpone_expiry(&self, state: &mut ModuleState, due: &DueLock, at: Instant) {
        if self.expiry.get() == due.handle {
            self.expiry
                .set(state.expiry.insert(due.db, due.name.as_bytes(), at));
        }
    }

    /// Has the sweeper visit the lock when its first lease expires. An earlier visit stays as it is.
    pub fn schedule_expiry(&self, state: &mut ModuleState, name: LockNameRef<'_>, clock: LeaseClock) {
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

    /// Takes note of a value that was loaded, or put under another name, unless that has been done: of its fences and
    /// leases, and when it expires.
    pub fn observe(&self, state: &mut ModuleState, name: LockNameRef<'_>) {
        if self.expiry.get() == ExpiryHandle::NONE {
            let now = clock::now();
            state.server.observe_lock(&self.lock, now);
            state.server.wait_table.recheck_holders(name);
            self.schedule_expiry(state, name, state.server.clock(now));
        }
    }

    /// The lock is free, and its key is about to be deleted.
    pub fn cancel_expiry(&self, state: &mut ModuleState, name: LockNameRef<'_>) {
        let old = self.expiry.replace(ExpiryHandle::NONE);
        state.expiry.remove(name.db, name.key, old);
    }
}

impl DataType for LockValue {
    fn native() -> &'static NativeType<Self> {
        &LOCK_TYPE
    }

    fn load(rdb: &mut Io<'_>, encoding: c_int) -> Option<Self> {
        if encoding != ENCODING_VERSION {
            rdb.log_warning(
                "a lock in an encoding that this version of the module does not know, update the module",
            );
            return None;
        }
        let bytes = rdb.load_bytes()?;
        let lock = match decode_lock(&bytes, clock::now()) {
            Ok(lock) => lock,
            Err(error) => {
                rdb.log_warning(&format!("a value that cannot be decoded: {error}"));
                return None;
            }
        };
        let value = Self::new(lock);
        let name = rdb.key();
        if Flags::without_client(rdb).is_active_primary() {
            // RESTORE
            if let Err(error) = check_restored(rdb.state(), &value.lock) {
                rdb.log_warning(error);
                return None;
            }
            rdb.state()
                .restored
                .extend(name.map(|(db, name)| LockName::new(db, name.bytes())));
            wait_timer::arm(rdb);
        } else if let Some((db, name)) = name {
            value.observe(rdb.state(), LockNameRef::new(db, name.bytes()));
        }
        Some(value)
    }

    /// Beside the main thread, only with what the lock itself, a clock and the beginning of the snapshot say.
    fn save(&self, payload: &mut Payload<'_>) {
        let now = clock::now();
        let clock = match payload.gil() {
            Some(gil) => gil.state().server.clock(now),
            None => snapshot_clock::at(now),
        };
        payload.save_bytes(&encode_lock(&self.lock, clock));
    }

    fn rewrite(&self, aof: &mut Io<'_>, key: RStr<'_>) {
        let clock = aof.state().server.clock(clock::now());
        aof.emit(APPLY, key, &encode_lock(&self.lock, clock));
    }

    /// RENAME and MOVE put the value under another name, without a word: it is not indexed until a command opens it.
    fn unlink(&self, gil: &mut Gil<'_>, db: c_int, name: RStr<'_>) {
        // A free lock is one that the module itself deletes.
        if self.lock.is_free() {
            return;
        }
        let (state, name) = (gil.state(), LockNameRef::new(db, name.bytes()));
        self.observe(state, name);
        self.cancel_expiry(state, name);
        if state.server.wait_table.queue(name).is_some() {
            state.server.wait_table.schedule(name, Instant::DISTANT_PAST);
            wait_timer::arm(gil);
        }
    }

    /// Owners with their fences and holds. Leases are left out: they pass at their own pace on a replica.
    fn digest(&self, digest: &mut Digest<'_>) {
        for holder in self.lock.holders() {
            let numbers = format!("{}:{}:{:?}", holder.fence(), holder.holds(), holder.limit().get());
            digest.add(holder.owner());
            digest.add(numbers.as_bytes());
        }
        digest.end_sequence();
    }

    fn memory_usage(&self) -> usize {
        size_of::<Self>().saturating_add(self.lock.heap_bytes())
    }

    fn free_effort(&self) -> usize {
        self.lock.holders().len().max(1)
    }

    /// Redis 7.2 and later. A server that has never granted anything, or that need not keep its fence, writes nothing,
    /// so that its RDB can be read without the module.
    fn save_aux(rdb: &mut Io<'_>) {
        let state = rdb.state();
        let checkpoint = state.server.checkpoint(clock::now());
        if checkpoint != Checkpoint::default() && state.keeps_fence() {
            rdb.save_numbers(&[AUX_VERSION, checkpoint.fence, checkpoint.grace_left_ms]);
        }
    }

    fn load_aux(rdb: &mut Io<'_>, encoding: c_int) -> bool {
        let record = rdb.load_numbers();
        let Some([_, fence, grace_left_ms]) =
            record.filter(|[version, fence, _]| *version == AUX_VERSION && *fence <= MAX_FENCE)
        else {
            let [version, ..] = record.unwrap_or_default();
            rdb.log_warning(&format!(
                "module data of encoding {encoding} version {version} cannot be read: it is damaged, or a newer \
                 version of the module wrote it"
            ));
            return false;
        };
        let checkpoint = Checkpoint { fence, grace_left_ms };
        let state = rdb.state();
        state.server.restore_checkpoint(checkpoint, clock::now());
        true
    }
}

/// Checks a lock from a client, by its largest fence and its longest lease. The error says why no server could have
/// made it.
pub fn check_plausible(state: &ModuleState, fence: Fence, lease_ms: u64) -> Result<(), &'static str> {
    if !state.server.fences.is_plausible(fence, clock::wall_clock()) {
        Err(
            "rejected a lock whose fencing token is more than a year ahead of this server's: check the clocks of both",
        )
    } else if lease_ms > config::MAX_MS.unsigned_abs() {
        Err("rejected a lock with a lease of more than ten years: no server grants that")
    } else {
        Ok(())
    }
}

fn check_restored(state: &ModuleState, lock: &Lock) -> Result<(), &'static str> {
    let clock = state.server.clock(clock::now());
    let fence = lock.holders().iter().map(|holder| holder.fence()).max();
    let lease_ms = lock.holders().iter().map(|holder| holder.lease_ms(clock)).max();
    check_plausible(state, fence.unwrap_or(0), lease_ms.unwrap_or(0))
}
