//! The module's section of INFO.

use std::ffi::{CString, c_int};

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::gil::Gil;

const OK: c_int = raw::REDISMODULE_OK as c_int;

/// What the section shows: names, without the module's, and values.
pub trait InfoSection {
    fn fields(gil: &mut Gil<'_>) -> Vec<(&'static str, String)>;
}

impl Ctx<'_> {
    /// False if the server refuses it.
    pub fn register_info<S: InfoSection>(&mut self) -> bool {
        // SAFETY: takes nothing but the context.
        unsafe { api!(RedisModule_RegisterInfoFunc)(self.raw(), Some(write::<S>)) == OK }
    }
}

unsafe extern "C" fn write<S: InfoSection>(info: *mut raw::RedisModuleInfoCtx, for_crash_report: c_int) {
    if for_crash_report != 0 {
        // The thread that crashed may have been in the middle of a change, and need not be the server's own.
        return;
    }
    // SAFETY: the server calls this from INFO, on its own thread.
    let mut gil = unsafe { Gil::assume() };
    let fields = S::fields(&mut gil);
    // SAFETY: the server passes a context that is valid during the call; strings are C strings.
    unsafe {
        // Without a name the section is that of the module itself.
        if api!(RedisModule_InfoAddSection)(info, std::ptr::null()) != OK {
            // INFO was asked for another section.
            return;
        }
        for (name, text) in fields {
            let (name, text) = (
                CString::new(name).unwrap_or_default(),
                CString::new(text).unwrap_or_default(),
            );
            api!(RedisModule_InfoAddFieldCString)(info, name.as_ptr(), text.as_ptr());
        }
    }
}
