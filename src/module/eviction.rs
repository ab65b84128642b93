//! Whether the server may evict locks. A lock has no TTL, so only the `allkeys-*` policies can.

use std::ffi::CStr;

use redis_module::raw;

use crate::module::config;
use crate::module::state;
use crate::redis::api::required;
use crate::redis::ctx::Ctx;

/// Looks at `maxmemory` and `maxmemory-policy`. At load, and whenever a setting changes.
pub fn look(ctx: Ctx<'_>) {
    let evictable = is_evictable(ctx);
    let before = state::with(|state| std::mem::replace(&mut state.evictable, evictable));
    if evictable && !before && !config::allow_eviction() {
        ctx.log_warning(
            "maxmemory-policy allkeys-* may evict a held lock, so that no new owner gets one (EVICTABLE): \
             use noeviction or volatile-*, or set dlock.allow-eviction yes",
        );
    }
}

fn is_evictable(ctx: Ctx<'_>) -> bool {
    if ctx.info_number(c"memory", c"maxmemory") == Some(0) {
        return false;
    }
    // SAFETY: the context is valid, the strings are C strings; the answer is freed below, and nothing of
    // it is kept.
    unsafe {
        let info = required(raw::RedisModule_GetServerInfo)(ctx.raw(), c"memory".as_ptr());
        let policy = required(raw::RedisModule_ServerInfoGetFieldC)(info, c"maxmemory_policy".as_ptr());
        let any_key = !policy.is_null() && CStr::from_ptr(policy).to_bytes().starts_with(b"allkeys");
        required(raw::RedisModule_FreeServerInfo)(ctx.raw(), info);
        any_key
    }
}
