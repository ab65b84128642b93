//! The first thing that happens when the module is loaded.

use redis_module::{Context, raw};

use crate::redis::ffi::api::{self, api};
use crate::redis::ffi::ctx::{Ctx, accept_slot_imports};
use crate::redis::ffi::gil::note_main_thread;
use crate::redis::versions::{HANDLE_ATOMIC_SLOT_MIGRATION, HANDLE_FORKLESS, valkey_version};

/// Looks up the functions of the server, and says how the module uses them. The error names one that is missing.
pub fn attach(context: &Context) -> Result<Ctx<'_>, &'static str> {
    // SAFETY: the server passes a context that is valid during the call, and nothing of the module runs before.
    let mut ctx = unsafe {
        api::load(context.ctx)?;
        Ctx::new(context.ctx)
    };
    // IO errors: without it a truncated RESTORE kills the server. Implicit signals: with them a refused request would
    // break WATCH and invalidate client caches.
    let mut options =
        raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    note_main_thread();
    let valkey = ctx.info_text(c"server", c"valkey_version");
    let valkey = valkey.and_then(|version| valkey_version(&version));
    if valkey >= Some((9, 0)) {
        options |= HANDLE_ATOMIC_SLOT_MIGRATION;
        accept_slot_imports();
    }
    if valkey >= Some((9, 2)) {
        options |= HANDLE_FORKLESS;
    }
    // SAFETY: takes nothing but the context.
    unsafe { api!(RedisModule_SetModuleOptions)(ctx.raw(), options.cast_signed()) };
    Ok(ctx)
}
