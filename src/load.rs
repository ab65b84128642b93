//! What happens when the module is loaded, after `redis_module!` has registered the data type.

use redis_module::{Context, RedisString, Status};

use crate::commands::{
    Acquire, Apply, CATEGORY, CheckpointCommand, Extend, Grants, Guard, Help, Info, Owner, Probe, Release,
};
use crate::events::DlockEvents;
use crate::host::{config, policy};
use crate::info::DlockInfo;
use crate::redis::{Consistency, Ctx, attach, log};

/// Registers commands, events and INFO; [`Status::Err`] keeps the module from being loaded.
pub fn load(context: &Context, args: &[RedisString]) -> Status {
    let mut ctx = match attach(context) {
        Ok(ctx) => ctx,
        Err(missing) => {
            context.log_warning(&format!(
                "dlock needs Redis 7.0, Redict 7.3, Valkey 8.0 or later: this server has no {missing}, update it"
            ));
            return Status::Err;
        }
    };
    match register(&mut ctx, !args.is_empty()) {
        Ok(()) => Status::Ok,
        Err(reason) => {
            log::warning(reason);
            Status::Err
        }
    }
}

fn register(ctx: &mut Ctx<'_>, has_arguments: bool) -> Result<(), &'static str> {
    if has_arguments {
        return Err(
            "dlock takes no module arguments: give settings as 'dlock.<name> <value>' in redis.conf, \
             or by MODULE LOADEX ... CONFIG dlock.<name> <value>",
        );
    }
    if !config::register(ctx) {
        return Err(
            "dlock rejects the value of a setting, named above: correct 'dlock.<name> <value>' in redis.conf, \
             or in MODULE LOADEX ... CONFIG dlock.<name> <value>",
        );
    }
    config::QuorumOrReplicas::check()?;
    let registered = ctx.register_acl_category(CATEGORY)
        && register_commands(ctx)
        && ctx.subscribe::<DlockEvents>()
        && ctx.register_info::<DlockInfo>();
    if !registered {
        return Err(
            "dlock could not register its commands or events: is another module of that name loaded?",
        );
    }
    ctx.receive_messages::<DlockEvents>();
    policy::refresh::<DlockEvents>(ctx);
    Ok(())
}

fn register_commands(ctx: &mut Ctx<'_>) -> bool {
    ctx.register_command::<Acquire>()
        && ctx.register_command::<Release>()
        && ctx.register_command::<Extend>()
        && ctx.register_command::<Guard>()
        && ctx.register_command::<Grants>()
        && ctx.register_command::<Owner>()
        && ctx.register_command::<Info>()
        && ctx.register_command::<Help>()
        // Replication and AOF only.
        && ctx.register_command::<Apply>()
        && ctx.register_command::<CheckpointCommand>()
        // The module itself only.
        && ctx.register_command::<Probe>()
}
