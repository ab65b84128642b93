//! What happens when the module is loaded, after `redis_module!` has registered data type and settings.

use redis_module::{Context, RedisString, Status, raw};

use crate::commands::entry::Command;
use crate::module::config;
use crate::module::events;
use crate::module::eviction;
use crate::module::info;
use crate::redis::api::required;
use crate::redis::command_info;
use crate::redis::ctx::Ctx;
use crate::waiting::due;

/// Makes one command known to the server.
pub type Register = fn(Ctx<'_>) -> bool;

/// See [`Register`].
pub fn command<C: Command>(ctx: Ctx<'_>) -> bool {
    command_info::register::<C>(ctx)
}

/// Registers commands, events and INFO; [`Status::Err`] keeps the module from being loaded.
pub fn load(context: &Context, args: &[RedisString], commands: &[Register]) -> Status {
    // SAFETY: the server passes a context that is valid during the call.
    let ctx = unsafe { Ctx::new(context.ctx) };
    if is_older_than_redis_7() {
        ctx.log_warning("dlock needs Redis 7.0, Redict 7.3, Valkey 8.0 or later: update the server");
        return Status::Err;
    }
    if !args.is_empty() {
        ctx.log_warning(
            "dlock takes no module arguments: give settings as 'dlock.<name> <value>' in redis.conf, \
             or by MODULE LOADEX ... CONFIG dlock.<name> <value>",
        );
        return Status::Err;
    }
    set_options(ctx);
    if !config::register(context) {
        ctx.log_warning(
            "dlock does not take the value of a setting, named above: correct 'dlock.<name> <value>' in redis.conf, \
             or in MODULE LOADEX ... CONFIG dlock.<name> <value>",
        );
        return Status::Err;
    }
    let registered = command_info::add_category(ctx)
        && commands.iter().all(|register| register(ctx))
        && events::subscribe(ctx)
        && raw::register_info_function(ctx.raw(), Some(info::write)) == Status::Ok;
    if !registered {
        ctx.log_warning(
            "dlock could not register its commands or events: is another module of that name loaded?",
        );
        return Status::Err;
    }
    due::prepare(ctx);
    eviction::look(ctx);
    Status::Ok
}

/// A server without the newest functions that we cannot do without.
fn is_older_than_redis_7() -> bool {
    // SAFETY: the pointers are set once, before this module is called.
    let (describe, configure, clock) = unsafe {
        (
            raw::RedisModule_SetCommandInfo,
            raw::RedisModule_RegisterNumericConfig,
            raw::RedisModule_MonotonicMicroseconds,
        )
    };
    describe.is_none() || configure.is_none() || clock.is_none()
}

fn set_options(ctx: Ctx<'_>) {
    // IO errors: without it a truncated RESTORE kills the server. Implicit signals: with them a refused
    // request would break WATCH and invalidate client caches.
    let options =
        raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    // SAFETY: the context is valid.
    unsafe { required(raw::RedisModule_SetModuleOptions)(ctx.raw(), options.cast_signed()) };
}
