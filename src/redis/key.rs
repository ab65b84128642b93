//! An open key, and the lock under it.

use std::ffi::c_int;

use redis_module::raw;

use crate::module::data_type::{self, Stored};
use crate::redis::api::required;
use crate::redis::ctx::{Ctx, Text};

/// A key that is open while this lives. Nothing found under it may be kept longer.
pub struct Key<'a> {
    raw: *mut raw::RedisModuleKey,
    call: std::marker::PhantomData<&'a ()>,
}

/// What is under a key.
pub enum Value<'k> {
    Nothing,
    Lock(&'k mut Stored),
    OtherType,
}

impl<'a> Key<'a> {
    /// Opens for reading. Never changes anything, on a replica neither.
    pub fn read(ctx: Ctx<'a>, name: Text<'a>) -> Self {
        Self::open(ctx, name, raw::REDISMODULE_READ)
    }

    /// Opens for writing. A key whose Redis TTL has passed is deleted by that.
    pub fn write(ctx: Ctx<'a>, name: Text<'a>) -> Self {
        Self::open(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    fn open(ctx: Ctx<'a>, name: Text<'a>, mode: u32) -> Self {
        // SAFETY: context and name are valid for `'a`, and the key is closed before that ends.
        let raw = unsafe { required(raw::RedisModule_OpenKey)(ctx.raw(), name.raw(), mode.cast_signed()) };
        Self {
            raw,
            call: std::marker::PhantomData,
        }
    }

    pub fn value(&mut self) -> Value<'_> {
        // SAFETY: the key is open or null, and is borrowed for as long as the value.
        unsafe { value_of(self.raw) }
    }

    /// Puts a lock under the key, in place of nothing.
    pub fn set(&mut self, stored: Box<Stored>) {
        let value = Box::into_raw(stored);
        // SAFETY: the key is open for writing, the value is of our type; the server now owns it and gives
        // it back to `free`.
        let status = unsafe {
            required(raw::RedisModule_ModuleTypeSetValue)(self.raw, data_type::raw_type(), value.cast())
        };
        if status != raw::REDISMODULE_OK as c_int {
            // SAFETY: the server did not take it, so that it is still ours.
            drop(unsafe { Box::from_raw(value) });
        }
    }

    pub fn delete(&mut self) {
        // SAFETY: the key is open for writing; no reference to its value is alive, `self` is borrowed.
        unsafe { required(raw::RedisModule_DeleteKey)(self.raw) };
    }

    /// Takes away a Redis TTL that somebody set by hand.
    pub fn persist(&mut self) {
        let no_expire = i64::from(raw::REDISMODULE_NO_EXPIRE);
        // SAFETY: the key is open for writing. To ask is cheaper than to take away what is not there.
        unsafe {
            if required(raw::RedisModule_GetAbsExpire)(self.raw) != no_expire {
                required(raw::RedisModule_SetExpire)(self.raw, no_expire);
            }
        }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, closed once. The server ignores null.
        unsafe { required(raw::RedisModule_CloseKey)(self.raw) };
    }
}

/// What is under an open key.
///
/// # Safety
/// `key` is open for all of `'k`, or null, and nobody else has a reference to its value meanwhile.
pub unsafe fn value_of<'k>(key: *mut raw::RedisModuleKey) -> Value<'k> {
    // SAFETY: the key is open or null, which has no type.
    let datatype = unsafe { required(raw::RedisModule_ModuleTypeGetType)(key) };
    if datatype != data_type::raw_type() {
        // SAFETY: the key is open or null, which the server takes for "nothing there".
        let kind = unsafe { required(raw::RedisModule_KeyType)(key) };
        return if kind == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
            Value::Nothing
        } else {
            Value::OtherType
        };
    }
    // SAFETY: a value of our type is a `Stored` that `Key::set` or `rdb_load` made; the caller vouches that
    // nobody else has it.
    let stored = unsafe {
        required(raw::RedisModule_ModuleTypeGetValue)(key)
            .cast::<Stored>()
            .as_mut()
    };
    stored.map_or(Value::OtherType, Value::Lock)
}
