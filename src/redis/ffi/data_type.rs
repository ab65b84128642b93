//! A data type of the module: the callbacks that the server wants, for a Rust type.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use redis_module::native_types::RedisType;
use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::gil::Gil;
use crate::redis::ffi::io::{Digest, Io, Payload};
use crate::redis::ffi::string::RStr;

/// A value that the server keeps under keys. It may free one on another thread, without a [`Gil`], or save it there while
/// nothing opens its key for writing.
pub trait DataType: Send + Sized + 'static {
    fn native() -> &'static NativeType<Self>;

    /// Reads a value from an RDB file. `None` if it cannot be used, which is logged.
    fn load(rdb: &mut Io<'_>, encoding: c_int) -> Option<Self>;
    /// Writes it, perhaps on another thread. It may use there what only a key that is open for writing changes.
    fn save(&self, payload: &mut Payload<'_>);
    /// Writes commands that make the value from nothing.
    fn rewrite(&self, aof: &mut Io<'_>, key: RStr<'_>);
    /// The value leaves its name: deleted, overwritten or renamed.
    fn unlink(&self, gil: &mut Gil<'_>, db: c_int, name: RStr<'_>);
    fn digest(&self, digest: &mut Digest<'_>);
    fn memory_usage(&self) -> usize;
    /// The number of allocations: with many the server frees the value on another thread.
    fn free_effort(&self) -> usize;

    /// Writes what the module keeps besides values.
    fn save_aux(rdb: &mut Io<'_>);
    /// Reads it. False if it cannot be used, which is logged.
    fn load_aux(rdb: &mut Io<'_>, encoding: c_int) -> bool;
}

/// A type that is registered with the server when the module is loaded.
pub struct NativeType<T> {
    native: RedisType,
    value: PhantomData<fn(T)>,
}

impl<T: DataType> NativeType<T> {
    pub const fn new(name: &'static str, encoding: c_int) -> Self {
        Self {
            native: RedisType::new(name, encoding, methods::<T>()),
            value: PhantomData,
        }
    }

    /// Called by `redis_module!`.
    pub fn create_data_type(&self, ctx: *mut raw::RedisModuleCtx) -> Result<(), &str> {
        self.native.create_data_type(ctx)
    }

    pub(super) fn raw(&self) -> *mut raw::RedisModuleType {
        *self.native.raw_type.borrow()
    }
}

const fn methods<T: DataType>() -> raw::RedisModuleTypeMethods {
    raw::RedisModuleTypeMethods {
        version: raw::REDISMODULE_TYPE_METHOD_VERSION as u64,
        rdb_load: Some(rdb_load::<T>),
        rdb_save: Some(rdb_save::<T>),
        aof_rewrite: Some(aof_rewrite::<T>),
        free: Some(free::<T>),
        digest: Some(digest::<T>),
        mem_usage: Some(mem_usage::<T>),
        free_effort: Some(free_effort::<T>),
        unlink2: Some(unlink::<T>),
        aux_load: Some(aux_load::<T>),
        aux_save2: Some(aux_save::<T>),
        aux_save_triggers: raw::REDISMODULE_AUX_BEFORE_RDB as c_int,
        // Always writes, and makes every RDB unreadable without the module. `aux_save2` (Redis 7.2) does not.
        aux_save: None,
        // `unlink2` also knows the name and the database.
        unlink: None,
        // The server refuses COPY: a copy of a lock would be a second lock with the same owners.
        copy: None,
        copy2: None,
        // Values are small and short-lived.
        defrag: None,
        // The variant without a context suffices.
        mem_usage2: None,
        free_effort2: None,
    }
}

unsafe extern "C" fn rdb_load<T: DataType>(rdb: *mut raw::RedisModuleIO, encoding: c_int) -> *mut c_void {
    // SAFETY: the server passes a file that is valid during the call.
    let value = T::load(&mut unsafe { Io::new(rdb) }, encoding);
    value.map_or(std::ptr::null_mut(), |value| {
        Box::into_raw(Box::new(value)).cast()
    })
}

unsafe extern "C" fn rdb_save<T: DataType>(rdb: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server passes a value of this type, and a file that is valid during the call.
    let (value, mut payload) = unsafe { (&*value.cast::<T>(), Payload::new(rdb)) };
    value.save(&mut payload);
}

unsafe extern "C" fn aof_rewrite<T: DataType>(
    aof: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server passes a value of this type with its key, and a file that is valid during the call.
    let (value, key, mut aof) = unsafe { (&*value.cast::<T>(), RStr::new(key), Io::new(aof)) };
    value.rewrite(&mut aof, key);
}

unsafe extern "C" fn free<T: DataType>(value: *mut c_void) {
    // SAFETY: a value of this type, made by `Box::into_raw`, that the server gives back once.
    drop(unsafe { Box::from_raw(value.cast::<T>()) });
}

unsafe extern "C" fn unlink<T: DataType>(key: *mut raw::RedisModuleKeyOptCtx, value: *const c_void) {
    // SAFETY: the server passes a value of this type, and a context that is valid during the call.
    let (value, name, db, mut gil) = unsafe {
        let name = api!(RedisModule_GetKeyNameFromOptCtx)(key);
        let db = api!(RedisModule_GetDbIdFromOptCtx)(key);
        (&*value.cast::<T>(), RStr::new(name.cast_mut()), db, Gil::assume())
    };
    value.unlink(&mut gil, db, name);
}

unsafe extern "C" fn digest<T: DataType>(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    // SAFETY: the server passes a value of this type, and a digest that is valid during the call.
    let (value, mut digest) = unsafe { (&*value.cast::<T>(), Digest::new(digest)) };
    value.digest(&mut digest);
}

unsafe extern "C" fn mem_usage<T: DataType>(value: *const c_void) -> usize {
    // SAFETY: the server passes a value of this type.
    unsafe { &*value.cast::<T>() }.memory_usage()
}

unsafe extern "C" fn free_effort<T: DataType>(_: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    // SAFETY: the server passes a value of this type.
    unsafe { &*value.cast::<T>() }.free_effort()
}

unsafe extern "C" fn aux_save<T: DataType>(rdb: *mut raw::RedisModuleIO, _when: c_int) {
    // SAFETY: the server passes a file that is valid during the call.
    T::save_aux(&mut unsafe { Io::new(rdb) });
}

unsafe extern "C" fn aux_load<T: DataType>(
    rdb: *mut raw::RedisModuleIO,
    encoding: c_int,
    _when: c_int,
) -> c_int {
    // SAFETY: the server passes a file that is valid during the call.
    let loaded = T::load_aux(&mut unsafe { Io::new(rdb) }, encoding);
    let status = if loaded {
        raw::REDISMODULE_OK
    } else {
        raw::REDISMODULE_ERR
    };
    status as c_int
}
