use dlock_core::Lock;
use dlock_core::cluster::slots::slot_of;

use crate::background::gate::PROBE;
use crate::change::lock_value::LockValue;
use crate::commands::CATEGORY;
use crate::redis::{
    Argument, Call, Command, Ctx, InnerCommand, KeyUse, Metadata, RStr, RString, ReadKey, Value,
};
use crate::state::counters::increment;
use crate::state::error::Error;
use crate::state::module_state::HasState;

/// DLOCK.GUARD key owner fence [command [arg ...]]
///
/// Runs the command and replies what it replies, if the owner holds the lock under this fence. Without a command it
/// replies what remains of the lease, in milliseconds.
pub struct Guard;

/// The position of the inner command.
const COMMAND_AT: usize = 4;

/// What the commands of this module begin with.
const OWN_PREFIX: &str = "dlock.";

/// What these change belongs to a connection, and the module's call has one of its own.
const OF_CONNECTIONS: [&str; 6] = ["SELECT", "READONLY", "READWRITE", "ASKING", "WAIT", "WAITAOF"];

impl Command for Guard {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.guard",
        flags: c"write",
        arity: -4,
        summary: c"Runs a command if the owner holds the lock under this fence: a fenced write.",
        complexity:
            c"O(N) where N is the number of holders: 1 for a mutex. Plus the complexity of the command.",
        key: Some(KeyUse::Read),
        arguments: &[
            Argument::key(c"key"),
            Argument::string(c"owner"),
            Argument::integer(c"fence"),
            Argument::block(
                c"inner-command",
                &[
                    Argument::string(c"command"),
                    Argument::string(c"arg").optional().multiple(),
                ],
            )
            .optional(),
        ],
        categories: "write slow",
        own_category: Some(CATEGORY),
        since: c"0.1.0",
    };

    fn run(call: &mut Call<'_>) -> Result<(), Error> {
        let request = dlock_core::Guard::parse(call.options())?;
        let (key, command) = (call.arg(1)?, call.inner_command(COMMAND_AT));
        if let Some(command) = &command {
            reject_unguarded(command)?;
            reject_foreign_keys(&mut call.ctx, key, command)?;
        }
        let lease_ms = check(&mut call.ctx, key, &request)?;
        match command {
            Some(command) => call.ctx.run(&command)?,
            None => call.ctx.reply_integer(lease_ms),
        }
        Ok(())
    }
}

fn reject_unguarded(command: &InnerCommand<'_>) -> Result<(), Error> {
    if command.name_starts_with(OWN_PREFIX) {
        return Err(Error::NotGuarded("DLOCK commands: send them on their own"));
    }
    if command.is_one_of(&OF_CONNECTIONS) {
        return Err(Error::NotGuarded(
            "commands about the connection: send them on their own, before or after",
        ));
    }
    Ok(())
}

/// The server knows the key of the lock only.
fn reject_foreign_keys(ctx: &mut Ctx<'_>, lock: RStr<'_>, command: &InnerCommand<'_>) -> Result<(), Error> {
    if !ctx.flags().is_cluster() {
        return Ok(());
    }
    let Some(keys) = command.keys(ctx) else {
        return Err(Error::NotGuarded(
            "commands in a cluster without COMMAND GETKEYS, which tells their keys: do not rename COMMAND",
        ));
    };
    let mut keys: Vec<_> = keys.iter().map(RString::borrow).collect();
    let slot = slot_of(lock.bytes());
    if keys.iter().any(|key| slot_of(key.bytes()) != slot) {
        return Err(Error::CrossSlot);
    }
    if keys.is_empty() {
        return Ok(());
    }
    keys.push(lock);
    // A single key that is missing would be looked for on this node, though the other one may still have it.
    ctx.can_write(PROBE, &keys).or(Err(Error::TryAgain))
}

/// What remains of the lease. The key is closed again at the end: the inner command may delete or replace this lock.
fn check(ctx: &mut Ctx<'_>, key: RStr<'_>, request: &dlock_core::Guard<'_>) -> Result<u64, Error> {
    let flags = ctx.flags();
    if !flags.is_active_primary() {
        return Err(Error::ReadOnly);
    }
    let clock = ctx.state().begin_read(flags);
    let checked = match ReadKey::<LockValue>::open(ctx, key).value() {
        Value::Ours(value) => request.check(&value.lock, clock),
        // Another type too: for the caller the lock is lost either way.
        Value::Nothing | Value::OtherType => request.check(&Lock::default(), clock),
    };
    let counters = &mut ctx.state().counters;
    increment(match checked {
        Ok(_) => &mut counters.guarded,
        Err(_) => &mut counters.guards_refused,
    });
    Ok(checked?)
}
