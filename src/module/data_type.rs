//! The data type `dist-lock`: what the server does with a lock as a value.

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use redis_module::native_types::RedisType;
use redis_module::raw;

use crate::expiry::untracked;
use crate::module::state;
use crate::redis::api::required;
use crate::redis::ctx::{self, Text};
use crate::redis::rdb;
use crate::txn::lease_moment;
use crate::waiting::due;
use dlock_core::expiry::ExpiryHandle;
use dlock_core::{Instant, Lock, TransitionContext, decode_lock, encode_lock};

/// The encoding of values in RDB files and DUMP payloads.
const ENCODING_VERSION: c_int = 1;

/// A value: a lock, and where it stands in the registry. 64 bytes.
pub struct Stored {
    pub lock: Lock,
    /// A cell, because `unlink` gets a shared reference.
    place: Cell<ExpiryHandle>,
}

impl Stored {
    pub fn new(lock: Lock) -> Self {
        Self {
            lock,
            place: Cell::new(ExpiryHandle::NONE),
        }
    }

    pub fn place(&self) -> ExpiryHandle {
        self.place.get()
    }

    /// The registry has taken the lock out.
    pub fn has_no_place(&self) {
        self.place.set(ExpiryHandle::NONE);
    }

    pub fn is_stray(&self) -> bool {
        self.place() == ExpiryHandle::UNTRACKED
    }

    /// Has the lock looked at when its first lease has ended. One that is looked at earlier stays there.
    pub fn keep_place(&self, db: c_int, name: &[u8], moment: &TransitionContext) {
        let Some(at) = moment.first_lease_end(&self.lock) else {
            return;
        };
        let place = self.place();
        if place.is_indexed() && place.covers(at) {
            return;
        }
        if self.is_stray() {
            untracked::settled();
        }
        let new = state::with(|state| {
            if place.is_indexed() {
                state.registry.remove(db, name, place);
            }
            state.registry.insert(db, name, at)
        });
        self.place.set(new);
    }

    /// Nobody holds the lock any more: it is about to be deleted by ourselves.
    pub fn give_up_place(&self, db: c_int, name: &[u8]) {
        if self.is_stray() {
            untracked::settled();
        }
        let place = self.place.replace(ExpiryHandle::NONE);
        state::with(|state| state.registry.remove(db, name, place));
    }

    /// The value leaves its name.
    fn unlink(&self, db: c_int, name: &[u8]) {
        // A free lock is one that we delete ourselves.
        if !self.is_stray() && !self.lock.is_free() {
            let place = self.place.replace(ExpiryHandle::UNTRACKED);
            untracked::lost();
            let waited_for = state::with(|state| {
                state.registry.remove(db, name, place);
                let waited_for = state.waiting.name(db, name);
                if let Some(name) = &waited_for {
                    state.waiting.schedule(name, Instant::DISTANT_PAST);
                }
                waited_for.is_some()
            });
            if waited_for {
                due::arm();
            }
        }
    }
}

/// The type as the server knows it.
pub fn raw_type() -> *mut raw::RedisModuleType {
    *LOCK_TYPE.raw_type.borrow()
}

pub static LOCK_TYPE: RedisType = RedisType::new(
    "dist-lock",
    ENCODING_VERSION,
    raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION as u64,
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        free: Some(free),
        digest: Some(digest),
        mem_usage: Some(mem_usage),
        free_effort: Some(free_effort),
        unlink2: Some(unlink),
        aux_load: Some(rdb::aux_load),
        aux_save2: Some(rdb::aux_save),
        aux_save_triggers: raw::REDISMODULE_AUX_BEFORE_RDB as c_int,
        // Always writes, and makes every RDB unreadable without the module. `aux_save2` (Redis 7.2) does not.
        aux_save: None,
        // `unlink2` also knows the name and the database.
        unlink: None,
        // A copied lock would have two lives: the server refuses COPY.
        copy: None,
        copy2: None,
        // Locks are small and live shortly.
        defrag: None,
        // The one without a context suffices.
        mem_usage2: None,
        free_effort2: None,
    },
);

unsafe extern "C" fn rdb_load(rdb: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    if encoding != ENCODING_VERSION {
        rdb::log(
            rdb,
            "a lock in an encoding that this version of the module does not know, update the module",
        );
        return std::ptr::null_mut();
    }
    let stored = rdb::load_bytes(rdb).and_then(|bytes| load(rdb, &bytes));
    stored.map_or(std::ptr::null_mut(), |stored| {
        Box::into_raw(Box::new(stored)).cast()
    })
}

fn load(rdb: *mut raw::RedisModuleIO, bytes: &[u8]) -> Option<Stored> {
    let moment = lease_moment();
    let lock = match decode_lock(bytes, moment.now) {
        Ok(lock) => lock,
        Err(error) => {
            rdb::log(rdb, &format!("a value that cannot be decoded: {error}"));
            return None;
        }
    };
    if !learn(&lock, &moment) {
        rdb::log(
            rdb,
            "a lock with a fencing token more than a year ahead of this server's, refused: check the clocks of both",
        );
        return None;
    }
    let stored = Stored::new(lock);
    if let Some((db, name)) = rdb::key_of(rdb) {
        stored.keep_place(db, name.bytes(), &moment);
    }
    Some(stored)
}

/// Takes note of fences and leases that were given elsewhere. False when a client (RESTORE) brings a fence
/// that cannot be true.
fn learn(lock: &Lock, moment: &TransitionContext) -> bool {
    let highest = lock
        .holders()
        .iter()
        .map(|holder| holder.fence())
        .max()
        .unwrap_or(0);
    let longest = lock
        .holders()
        .iter()
        .map(|holder| moment.lease_ms(holder))
        .max()
        .unwrap_or(0);
    let from_client = ctx::flags_without_client().decides();
    let clock = ctx::wall_clock();
    state::with(|state| {
        if from_client && !state.fences.is_plausible(highest, clock) {
            return false;
        }
        state.fences.observe(highest);
        state.grace.observe_lease(longest);
        true
    })
}

unsafe extern "C" fn rdb_save(rdb: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server passes a value of our type.
    let stored = unsafe { &*value.cast::<Stored>() };
    rdb::save_bytes(rdb, &encode_lock(&stored.lock, &lease_moment()));
}

unsafe extern "C" fn aof_rewrite(
    aof: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server passes a value of our type, and the name it stands under.
    let (stored, key) = unsafe { (&*value.cast::<Stored>(), Text::new(key)) };
    rdb::emit_change(aof, key, &encode_lock(&stored.lock, &lease_moment()));
}

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: a value of our type, made by `Box::into_raw`, that the server gives back once. It may be on
    // another thread: nothing here but the value itself and an atomic is touched.
    let stored = unsafe { Box::from_raw(value.cast::<Stored>()) };
    if stored.is_stray() {
        untracked::settled();
    }
}

unsafe extern "C" fn unlink(key: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    // SAFETY: the server passes a value of our type, and a context that is valid during the call.
    let (stored, name, db) = unsafe {
        let name = required(raw::RedisModule_GetKeyNameFromOptCtx)(key);
        let db = required(raw::RedisModule_GetDbIdFromOptCtx)(key);
        (&*value.cast::<Stored>(), Text::new(name.cast_mut()), db)
    };
    stored.unlink(db, name.bytes());
}

/// Who holds the lock with which fence and how often. Leases are no part of it: they pass at their own
/// pace on a replica.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    // SAFETY: the server passes a value of our type.
    let stored = unsafe { &*value.cast::<Stored>() };
    for holder in stored.lock.holders() {
        let numbers = format!("{}:{}:{:?}", holder.fence(), holder.holds(), holder.limit().get());
        for part in [holder.owner(), numbers.as_bytes()] {
            // SAFETY: the digest is valid during the call, the bytes are valid for their length.
            unsafe {
                required(raw::RedisModule_DigestAddStringBuffer)(digest, part.as_ptr().cast(), part.len())
            };
        }
    }
    // SAFETY: the digest is valid during the call.
    unsafe { required(raw::RedisModule_DigestEndSequence)(digest) };
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of our type.
    let stored = unsafe { &*value.cast::<Stored>() };
    size_of::<Stored>().saturating_add(stored.lock.heap_bytes())
}

unsafe extern "C" fn free_effort(_key: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    // SAFETY: the server passes a value of our type.
    let stored = unsafe { &*value.cast::<Stored>() };
    stored.lock.holders().len().max(1)
}
