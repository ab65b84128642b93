//! Reading and writing RDB and AOF files, and what the module keeps in them beside the locks.

use std::ffi::{CString, c_int};
use std::slice;

use redis_module::raw;

use crate::module::state;
use crate::redis::api::required;
use crate::redis::ctx::{self, Text};
use dlock_core::MAX_FENCE;

/// The version of the record in the auxiliary data: highest fence known, grace left in milliseconds.
const AUX_VERSION: u64 = 1;

/// A string from an RDB, `None` when it cannot be read.
pub fn load_bytes(rdb: *mut raw::RedisModuleIO) -> Option<Vec<u8>> {
    let mut len = 0;
    // SAFETY: the server passes a valid `rdb` to the callbacks that call us.
    let data = unsafe { required(raw::RedisModule_LoadStringBuffer)(rdb, &mut len) };
    if data.is_null() {
        return None;
    }
    // SAFETY: the server gave us a buffer of that length, which we free once it is copied.
    unsafe {
        let bytes = slice::from_raw_parts(data.cast::<u8>(), len).to_vec();
        required(raw::RedisModule_Free)(data.cast());
        Some(bytes)
    }
}

pub fn save_bytes(rdb: *mut raw::RedisModuleIO, bytes: &[u8]) {
    // SAFETY: `rdb` is valid during the callback, the bytes are valid for their length.
    unsafe { required(raw::RedisModule_SaveStringBuffer)(rdb, bytes.as_ptr().cast(), bytes.len()) };
}

/// Writes the change that makes a lock from nothing.
pub fn emit_change(aof: *mut raw::RedisModuleIO, key: Text<'_>, change: &[u8]) {
    // SAFETY: `aof` is valid during the callback, the arguments are what the format says.
    unsafe {
        let emit = required(raw::RedisModule_EmitAOF);
        emit(
            aof,
            c"DLOCK.APPLY".as_ptr(),
            c"sb".as_ptr(),
            key.raw(),
            change.as_ptr(),
            change.len(),
        );
    }
}

/// The database and the name of the key that is being loaded.
pub fn key_of<'a>(io: *mut raw::RedisModuleIO) -> Option<(c_int, Text<'a>)> {
    // SAFETY: `io` is valid during the callback, and so is the name.
    unsafe {
        let name = required(raw::RedisModule_GetKeyNameFromIO)(io);
        let db = required(raw::RedisModule_GetDbIdFromIO)(io);
        (!name.is_null()).then(|| (db, Text::new(name.cast_mut())))
    }
}

pub fn log(io: *mut raw::RedisModuleIO, message: &str) {
    let message = CString::new(message).unwrap_or_default();
    // SAFETY: `io` is valid during the callback, the format takes one C string and gets one.
    unsafe {
        required(raw::RedisModule_LogIOError)(io, c"warning".as_ptr(), c"%s".as_ptr(), message.as_ptr());
    }
}

/// Redis 7.2 and later. A server that has never granted anything writes nothing, so that its RDB can be
/// read without the module.
pub unsafe extern "C" fn aux_save(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    let now = ctx::now();
    let (fence, grace_left_ms) = state::with(|state| (state.fences.known(), state.grace.left_ms(now)));
    if fence > 0 || grace_left_ms > 0 {
        for number in [AUX_VERSION, fence, grace_left_ms] {
            // SAFETY: `rdb` is valid during the callback.
            unsafe { required(raw::RedisModule_SaveUnsigned)(rdb, number) };
        }
    }
}

pub unsafe extern "C" fn aux_load(rdb: *mut raw::RedisModuleIO, encoding: c_int, _when: c_int) -> c_int {
    let [version, fence, grace_left_ms] = [(); 3].map(|()| {
        // SAFETY: `rdb` is valid during the callback. After an error every further number is 0.
        unsafe { required(raw::RedisModule_LoadUnsigned)(rdb) }
    });
    // SAFETY: `rdb` is valid during the callback.
    let failed = unsafe { required(raw::RedisModule_IsIOError)(rdb) != 0 };
    if failed || version != AUX_VERSION || fence > MAX_FENCE {
        log(
            rdb,
            &format!(
                "module data of encoding {encoding} version {version} cannot be read: it is damaged, or a newer \
                 version of the module wrote it"
            ),
        );
        return raw::REDISMODULE_ERR as c_int;
    }
    let now = ctx::now();
    state::with(|state| {
        state.fences.observe(fence);
        state.grace.restore(grace_left_ms, now);
    });
    raw::REDISMODULE_OK as c_int
}
