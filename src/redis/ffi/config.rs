//! Settings of the module. Each is an atomic variable: `CONFIG GET` reads it, `CONFIG SET` writes it.

use std::ffi::{CString, c_char, c_int, c_longlong, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::string::RString;

const OK: c_int = raw::REDISMODULE_OK as c_int;

pub struct Number {
    pub name: &'static str,
    pub value: &'static AtomicI64,
    pub default: i64,
    pub min: i64,
    pub max: i64,
}

pub struct Switch {
    pub name: &'static str,
    pub value: &'static AtomicBool,
    pub default: bool,
}

/// Which settings exclude each other.
pub trait Consistency {
    /// After a CONFIG SET, which fails with this error: it tells what to do.
    fn check() -> Result<(), &'static str>;
}

impl Ctx<'_> {
    /// Registers the settings and reads what the configuration says; false if one of them has a bad value.
    pub fn register_settings<C: Consistency>(&mut self, numbers: &[Number], switches: &[Switch]) -> bool {
        let registered = numbers.iter().all(|number| self.register_number::<C>(number))
            && switches.iter().all(|switch| self.register_switch::<C>(switch));
        // SAFETY: takes nothing but the context.
        registered && unsafe { api!(RedisModule_LoadConfigs)(self.raw()) == OK }
    }

    fn register_number<C: Consistency>(&mut self, setting: &Number) -> bool {
        let name = CString::new(setting.name).unwrap_or_default();
        // SAFETY: the server copies the name, the variable is static.
        unsafe {
            api!(RedisModule_RegisterNumericConfig)(
                self.raw(),
                name.as_ptr(),
                setting.default,
                raw::REDISMODULE_CONFIG_DEFAULT,
                setting.min,
                setting.max,
                Some(get_number),
                Some(set_number),
                Some(apply::<C>),
                (&raw const *setting.value).cast_mut().cast(),
            ) == OK
        }
    }

    fn register_switch<C: Consistency>(&mut self, setting: &Switch) -> bool {
        let name = CString::new(setting.name).unwrap_or_default();
        // SAFETY: as above.
        unsafe {
            api!(RedisModule_RegisterBoolConfig)(
                self.raw(),
                name.as_ptr(),
                c_int::from(setting.default),
                raw::REDISMODULE_CONFIG_DEFAULT,
                Some(get_switch),
                Some(set_switch),
                Some(apply::<C>),
                (&raw const *setting.value).cast_mut().cast(),
            ) == OK
        }
    }
}

unsafe extern "C" fn get_number(_: *const c_char, value: *mut c_void) -> c_longlong {
    // SAFETY: the variable that the setting was registered with.
    unsafe { &*value.cast::<AtomicI64>() }.load(Ordering::Relaxed)
}

unsafe extern "C" fn set_number(
    _: *const c_char,
    new: c_longlong,
    value: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the variable that the setting was registered with.
    unsafe { &*value.cast::<AtomicI64>() }.store(new, Ordering::Relaxed);
    OK
}

unsafe extern "C" fn get_switch(_: *const c_char, value: *mut c_void) -> c_int {
    // SAFETY: the variable that the setting was registered with.
    c_int::from(unsafe { &*value.cast::<AtomicBool>() }.load(Ordering::Relaxed))
}

unsafe extern "C" fn set_switch(
    _: *const c_char,
    new: c_int,
    value: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the variable that the setting was registered with.
    unsafe { &*value.cast::<AtomicBool>() }.store(new != 0, Ordering::Relaxed);
    OK
}

unsafe extern "C" fn apply<C: Consistency>(
    _: *mut raw::RedisModuleCtx,
    _: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    match C::check() {
        Ok(()) => OK,
        Err(text) => {
            // SAFETY: the server takes the string over.
            unsafe { *error = RString::new(text.as_bytes()).into_raw() };
            raw::REDISMODULE_ERR as c_int
        }
    }
}
