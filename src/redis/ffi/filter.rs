//! Acknowledgements of replicas, which the server tells no module of: a filter of commands sees REPLCONF ACK.

use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};

use redis_module::raw;

use crate::redis::ffi::api::api;
use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::events::Events;
use crate::redis::ffi::gil::Gil;
use crate::redis::ffi::string::RStr;

/// Not the commands that this module calls.
const NO_SELF: c_int = raw::REDISMODULE_CMDFILTER_NOSELF as c_int;

/// The filter while there is one. It costs every command of the server some nanoseconds.
static FILTER: AtomicPtr<raw::RedisModuleCommandFilter> = AtomicPtr::new(std::ptr::null_mut());

impl Ctx<'_> {
    /// Whether [`Events::replica_acknowledges`] is called from now on.
    pub fn watch_acknowledgements<E: Events>(&mut self, watches: bool) {
        let filter = FILTER.load(Ordering::Relaxed);
        if watches != filter.is_null() {
            return;
        }
        // SAFETY: the callback has the signature that the server calls, and the filter that is removed is registered.
        let filter = unsafe {
            if watches {
                api!(RedisModule_RegisterCommandFilter)(self.raw(), Some(filtered::<E>), NO_SELF)
            } else {
                api!(RedisModule_UnregisterCommandFilter)(self.raw(), filter);
                std::ptr::null_mut()
            }
        };
        FILTER.store(filter, Ordering::Relaxed);
    }
}

unsafe extern "C" fn filtered<E: Events>(filter: *mut raw::RedisModuleCommandFilterCtx) {
    let is = |at: c_int, text: &[u8]| {
        // SAFETY: the server passes this context. The argument is valid during the call, or null if there is none.
        let argument = unsafe {
            let argument = api!(RedisModule_CommandFilterArgGet)(filter, at);
            (!argument.is_null()).then(|| RStr::new(argument))
        };
        argument.is_some_and(|argument| argument.bytes().eq_ignore_ascii_case(text))
    };
    if is(0, b"REPLCONF") && is(1, b"ACK") {
        // SAFETY: the server calls this on its main thread, before it runs a command: none of the module's.
        E::replica_acknowledges(&mut unsafe { Gil::assume() });
    }
}
