//! The first thing that happens when the module is loaded.

use redis_module::{Context, raw};

use crate::redis::api::{self, api};
use crate::redis::ctx::Ctx;

/// Looks up the functions of the server, and says how the module uses them. The error names one that is missing.
pub fn attach(context: &Context) -> Result<Ctx<'_>, &'static str> {
    // SAFETY: the server passes a context that is valid during the call, and nothing of the module runs before.
    let ctx = unsafe {
        api::load(context.ctx)?;
        Ctx::new(context.ctx)
    };
    // IO errors: without it a truncated RESTORE kills the server. Implicit signals: with them a refused request would
    // break WATCH and invalidate client caches.
    let options =
        raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    // SAFETY: the context is valid.
    unsafe { (api().set_module_options)(ctx.raw(), options.cast_signed()) };
    Ok(ctx)
}
