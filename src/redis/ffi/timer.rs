//! Timers that fire once.

use std::ffi::c_void;

use redis_module::raw;

use crate::redis::ffi::api::{api, detached};
use crate::redis::ffi::ctx::Ctx;
use crate::redis::ffi::gil::Gil;

/// What a timer calls.
pub type Callback = fn(&mut Ctx<'_>);

/// A timer that is set. The first thing its callback does is to drop it: the server aborts when a timer is stopped
/// while it fires.
pub struct Timer(raw::RedisModuleTimerID);

impl Timer {
    /// Fires after this time, which the server measures by the wall clock.
    pub fn set(_: &mut Gil<'_>, period_ms: u64, callback: Callback) -> Self {
        let period_ms = i64::try_from(period_ms).unwrap_or(0);
        let callback = callback as *mut c_void;
        // SAFETY: the context lives as long as the module. What travels with the timer is a function.
        Self(unsafe { api!(RedisModule_CreateTimer)(detached(), period_ms, Some(fire), callback) })
    }

    /// Not from its own callback, which has dropped it.
    pub fn stop(self, _: &mut Gil<'_>) {
        // SAFETY: the context lives as long as the module, and the timer has not fired: its owner still had it.
        unsafe { api!(RedisModule_StopTimer)(detached(), self.0, std::ptr::null_mut()) };
    }
}

unsafe extern "C" fn fire(ctx: *mut raw::RedisModuleCtx, callback: *mut c_void) {
    // SAFETY: the server passes a context that is valid during the call, and the function that `set` was given.
    let (mut ctx, callback) = unsafe {
        (
            Ctx::new(ctx),
            std::mem::transmute::<*mut c_void, Callback>(callback),
        )
    };
    callback(&mut ctx);
}
