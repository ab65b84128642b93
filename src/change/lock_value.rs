//! The data type `dist-lock`: what the server does with a lock as a value.

use std::cell::Cell;
use std::ffi::c_int;

use dlock_core::expiry::{DueLock, ExpiryHandle};
use dlock_core::{
    Checkpoint, Instant, Lock, LockName, LockRef, MAX_FENCE, TransitionContext, decode_lock, encode_lock,
};

use crate::change::APPLY;
use crate::change::restored;
use crate::redis::{DataType, Digest, Flags, Gil, Io, NativeType, RStr, clock};
use crate::state::module_state::State;
use crate::state::untracked;
use crate::state::wait_timer;

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

    /// The expiry index has taken this entry out, and shall have it again at `at`.
    pub fn postpone_expiry(&self, state: &mut State, due: &DueLock, at: Instant) {
        if self.expiry.get() == due.handle {
            self.expiry
                .set(state.expiry.insert(due.db, due.name.as_bytes(), at));
        }
    }

    pub fn is_untracked(&self) -> bool {
        self.expiry.get() == ExpiryHandle::UNTRACKED
    }

    /// Has the sweeper visit the lock when its first lease expires. An earlier visit stays as it is.
    pub fn schedule_expiry(&self, state: &mut State, db: c_int, name: &[u8], cx: &TransitionContext) {
        let Some(at) = cx.first_lease_end(&self.lock) else {
            return;
        };
        let old = self.expiry.get();
        if old.is_indexed() && old.covers(at) {
            return;
        }
        if self.is_untracked() {
            untracked::dec();
        }
        if old.is_indexed() {
            state.expiry.remove(db, name, old);
        }
        self.expiry.set(state.expiry.insert(db, name, at));
    }

    /// Takes note of a value that was loaded, unless that has been done: of its fences and leases, and when it expires.
    pub fn track(&self, state: &mut State, name: LockRef<'_>) {
        if self.expiry.get() == ExpiryHandle::NONE {
            let cx = state.lease_context();
            state.engine.observe_lock(&self.lock, &cx);
            self.schedule_expiry(state, name.db, name.key, &cx);
        }
    }

    /// The lock is free, and its key is about to be deleted.
    pub fn cancel_expiry(&self, state: &mut State, db: c_int, name: &[u8]) {
        if self.is_untracked() {
            untracked::dec();
        }
        let old = self.expiry.replace(ExpiryHandle::NONE);
        state.expiry.remove(db, name, old);
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
        let cx = rdb.state().lease_context();
        let lock = match decode_lock(&bytes, cx.now) {
            Ok(lock) => lock,
            Err(error) => {
                rdb.log_warning(&format!("a value that cannot be decoded: {error}"));
                return None;
            }
        };
        let value = Self::new(lock);
        let name = rdb.key();
        rdb.state().footprint.touch();
        if Flags::without_client(rdb).is_active_primary() {
            // RESTORE
            if let Err(error) = restored::check(rdb.state(), &value.lock) {
                rdb.log_warning(error);
                return None;
            }
            rdb.state()
                .restored
                .extend(name.map(|(db, name)| LockName::new(db, name.bytes())));
            wait_timer::arm(rdb);
        } else if let Some((db, name)) = name {
            value.track(rdb.state(), LockRef::new(db, name.bytes()));
        }
        Some(value)
    }

    fn save(&self, rdb: &mut Io<'_>) {
        let cx = rdb.state().lease_context();
        rdb.save_bytes(&encode_lock(&self.lock, &cx));
    }

    fn rewrite(&self, aof: &mut Io<'_>, key: RStr<'_>) {
        let cx = aof.state().lease_context();
        aof.emit(APPLY, key, &encode_lock(&self.lock, &cx));
    }

    fn unlink(&self, gil: &mut Gil<'_>, db: c_int, name: RStr<'_>) {
        if self.is_untracked() {
            return untracked::note_move();
        }
        // A free lock is one that the module itself deletes.
        if self.lock.is_free() {
            return;
        }
        let state = gil.state();
        self.track(state, LockRef::new(db, name.bytes()));
        let old = self.expiry.replace(ExpiryHandle::UNTRACKED);
        untracked::inc();
        state.expiry.remove(db, name.bytes(), old);
        let name = LockRef::new(db, name.bytes());
        if state.engine.wait_table.queue(name).is_some() {
            state.engine.wait_table.schedule(name, Instant::DISTANT_PAST);
            wait_timer::arm(gil);
        }
    }

    fn free(self) {
        if self.is_untracked() {
            untracked::dec();
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
        let checkpoint = state.engine.checkpoint(clock::now());
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
        state.engine.restore_checkpoint(checkpoint, clock::now());
        state.footprint.touch();
        true
    }
}
