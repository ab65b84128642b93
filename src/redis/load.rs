//! The first thing that happens when the module is loaded.

use redis_module::{Context, raw};

use crate::redis::api::{self, api};
use crate::redis::ctx::{Ctx, obey_slot_imports};

/// Of Valkey 9 and later: without it CLUSTER MIGRATESLOTS is refused. (`HANDLE_FORKLESS` stays off as long as
/// `replication/targets.rs` relies on the event of a fork.)
const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

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
    if is_valkey_9(&mut ctx) {
        options |= HANDLE_ATOMIC_SLOT_MIGRATION;
        obey_slot_imports();
    }
    // SAFETY: the context is valid.
    unsafe { api!(RedisModule_SetModuleOptions)(ctx.raw(), options.cast_signed()) };
    Ok(ctx)
}

fn is_valkey_9(ctx: &mut Ctx<'_>) -> bool {
    let version = ctx.info_text(c"server", c"valkey_version").unwrap_or_default();
    let major = version.split(|byte| *byte == b'.').next().unwrap_or_default();
    std::str::from_utf8(major).is_ok_and(|major| major.parse().is_ok_and(|major: u32| major >= 9))
}
