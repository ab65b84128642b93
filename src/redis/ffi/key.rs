//! Open keys, and the value of the module's type under them.
//!
//! An open key borrows its context, so that a command has one at a time, and nothing can delete the value while a
//! reference to it is in use.

use std::ffi::c_int;
use std::marker::PhantomData;

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::data_type::DataType;
use crate::redis::ffi::gil::GilCell;
use crate::redis::ffi::string::RStr;

/// What is under a key.
#[derive(Clone, Copy)]
pub enum Value<V> {
    Nothing,
    Ours(V),
    OtherType,
}

/// A key that is open for reading.
pub struct ReadKey<'c, 'a, T> {
    open: Open,
    ctx: &'c mut Ctx<'a>,
    value: PhantomData<T>,
}

/// A key that is open for writing.
pub struct WriteKey<'c, 'a, T> {
    open: Open,
    ctx: &'c mut Ctx<'a>,
    /// Looked up once: nothing but `self` changes it while the key is open.
    value: Value<*mut T>,
}

impl<'c, 'a, T: DataType> ReadKey<'c, 'a, T> {
    /// Changes nothing under the key, but that the server deletes it if its TTL has passed.
    pub fn open(ctx: &'c mut Ctx<'a>, name: RStr<'_>) -> Self {
        Self {
            open: Open::new(ctx, name, raw::REDISMODULE_READ),
            ctx,
            value: PhantomData,
        }
    }

    /// The value, together with one that the [`Gil`](super::gil::Gil) guards.
    pub fn value_and<S: Default>(&mut self, cell: &'static GilCell<S>) -> (Value<&T>, &mut S) {
        // SAFETY: as for `value`: both references borrow the key with its context.
        let value = unsafe { value_of(self.open.0) }.map(|value| unsafe { &*value });
        (value, cell.get(self.ctx))
    }

    pub fn value(&self) -> Value<&T> {
        // SAFETY: the key is open. While `self` is borrowed nothing changes it: that would take `&mut Ctx`.
        unsafe { value_of(self.open.0) }.map(|value| unsafe { &*value })
    }

    pub fn ctx(&self) -> &Ctx<'a> {
        self.ctx
    }
}

impl<'c, 'a, T: DataType> WriteKey<'c, 'a, T> {
    /// The server deletes the key if its TTL has passed. `None`: it is writing the value to a snapshot at the moment, on
    /// another thread. (A key that does not exist opens for writing.)
    pub fn open(ctx: &'c mut Ctx<'a>, name: RStr<'_>) -> Option<Self> {
        let open = Open::new(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE);
        if open.0.is_null() {
            return None;
        }
        // SAFETY: the key is open.
        let value = unsafe { value_of(open.0) };
        Some(Self { open, ctx, value })
    }

    /// The value, together with one that a [`GilCell`] lends.
    pub fn value_and<S: Default>(&mut self, cell: &'static GilCell<S>) -> (Value<&mut T>, &mut S) {
        // SAFETY: the key is open, and nothing else reaches the value: both references borrow the key with its context.
        let value = self.value.map(|value| unsafe { &mut *value });
        (value, cell.get(self.ctx))
    }

    /// Stores a value in place of nothing. False if the server does not take it.
    #[must_use]
    pub fn set(&mut self, value: Box<T>) -> bool {
        let value = Box::into_raw(value);
        // SAFETY: the key is open for writing, the value is of this type; the server now owns it.
        let status =
            unsafe { api!(RedisModule_ModuleTypeSetValue)(self.open.0, T::native().raw(), value.cast()) };
        if status != OK {
            // SAFETY: the server did not take it, so that it is still ours.
            drop(unsafe { Box::from_raw(value) });
            return false;
        }
        self.value = Value::Ours(value);
        true
    }

    pub fn delete(&mut self) {
        // SAFETY: the key is open for writing; no reference to its value is alive, `self` is borrowed.
        unsafe { api!(RedisModule_DeleteKey)(self.open.0) };
        self.value = Value::Nothing;
    }

    /// Removes a TTL.
    pub fn persist(&mut self) {
        let no_expire = i64::from(raw::REDISMODULE_NO_EXPIRE);
        // SAFETY: the key is open for writing. To ask is cheaper than to remove what is not there.
        unsafe {
            if api!(RedisModule_GetAbsExpire)(self.open.0) != no_expire {
                api!(RedisModule_SetExpire)(self.open.0, no_expire);
            }
        }
    }

    pub fn close(self) -> &'c mut Ctx<'a> {
        self.ctx
    }
}

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// Closed when dropped.
struct Open(*mut raw::RedisModuleKey);

impl Open {
    fn new(ctx: &mut Ctx<'_>, name: RStr<'_>, mode: u32) -> Self {
        // SAFETY: the name is valid. The key is closed before the context ends.
        Self(unsafe { api!(RedisModule_OpenKey)(ctx.raw(), name.raw(), mode.cast_signed()) })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: opened by `new`, closed once. The server ignores null.
        unsafe { api!(RedisModule_CloseKey)(self.0) };
    }
}

impl<V> Value<V> {
    fn map<W>(self, f: impl FnOnce(V) -> W) -> Value<W> {
        match self {
            Self::Nothing => Value::Nothing,
            Self::Ours(value) => Value::Ours(f(value)),
            Self::OtherType => Value::OtherType,
        }
    }
}

/// What is under an open key.
///
/// # Safety
/// `key` is open, or null. The pointer is valid until the key is closed or changed.
unsafe fn value_of<T: DataType>(key: *mut raw::RedisModuleKey) -> Value<*mut T> {
    // SAFETY: the key is open or null, which has no type and counts as empty. A value of this type is a `T` that
    // `WriteKey::set` or `rdb_load` made.
    unsafe {
        if api!(RedisModule_ModuleTypeGetType)(key) == T::native().raw() {
            let value = api!(RedisModule_ModuleTypeGetValue)(key).cast::<T>();
            if !value.is_null() {
                return Value::Ours(value);
            }
        } else if api!(RedisModule_KeyType)(key) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
            return Value::Nothing;
        }
    }
    Value::OtherType
}
