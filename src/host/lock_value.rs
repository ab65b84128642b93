//! The data type `dist-lock`: what the server does with a lock as a value.

use std::ffi::c_int;

use dlock_core::engine::{LockValue, Process, keyspace};
use dlock_core::{Checkpoint, Instant, LockNameRef, MAX_FENCE, decode_lock, encode_lock};

use crate::host::APPLY;
use crate::host::snapshot_clock;
use crate::redis::{DataType, Digest, Flags, Gil, Io, NativeType, Payload, RStr, clock};

/// The encoding of values in RDB files and DUMP payloads.
const ENCODING_VERSION: c_int = 1;

/// The version of the record in the auxiliary data: fence counter, grace left in milliseconds.
const AUX_VERSION: u64 = 1;

pub static LOCK_TYPE: NativeType<LockValue> = NativeType::new("dist-lock", ENCODING_VERSION);

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
        let lock = match decode_lock(&bytes, rdb.now()) {
            Ok(lock) => lock,
            Err(error) => {
                rdb.log_warning(&format!("a value that cannot be decoded: {error}"));
                return None;
            }
        };
        let name = rdb.key().map(|(db, name)| LockNameRef::new(db, name.bytes()));
        let is_active_primary = Flags::without_client(rdb).is_active_primary();
        let loaded = keyspace::loaded(lock, &mut **rdb, name, is_active_primary);
        loaded.inspect_err(|error| rdb.log_warning(error)).ok()
    }

    /// Beside the main thread, only with what the lock itself, a clock and the beginning of the snapshot say.
    fn save(&self, payload: &mut Payload<'_>) {
        let now = Instant::from_micros(clock::monotonic_micros());
        let clock = match payload.gil() {
            Some(gil) => gil.state().server.clock(now),
            None => snapshot_clock::at(now),
        };
        payload.save_bytes(&encode_lock(&self.lock, clock));
    }

    fn rewrite(&self, aof: &mut Io<'_>, key: RStr<'_>) {
        let now = aof.now();
        let clock = aof.state().server.clock(now);
        aof.emit(APPLY, key, &encode_lock(&self.lock, clock));
    }

    fn unlink(&self, gil: &mut Gil<'_>, db: c_int, name: RStr<'_>) {
        keyspace::unlinked(self, gil, LockNameRef::new(db, name.bytes()));
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
        let (now, environment) = (rdb.now(), rdb.environment());
        let state = rdb.state();
        let checkpoint = state.server.checkpoint(now);
        if checkpoint != Checkpoint::default() && state.keeps_fence(now, &environment) {
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
        let now = rdb.now();
        rdb.state().server.restore_checkpoint(checkpoint, now);
        true
    }
}
