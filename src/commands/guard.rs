use dlock_core::cluster::slots::slot_of;
use dlock_core::engine::{Error, guard};

use crate::commands::CATEGORY;
use crate::host::PROBE;
use crate::redis::{Argument, Command, Ctx, InnerCommand, Invocation, KeyUse, Metadata, RStr, RString};

/// DLOCK.GUARD: see [`dlock_core::Guard::SYNTAX`].
///
/// Runs the command and replies what it replies, if the owner holds the lock under this fence. Without a command it
/// replies what remains of the lease, in milliseconds.
pub struct Guard;

/// The position of the inner command.
const COMMAND_AT: usize = 4;

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
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        let request = dlock_core::Guard::parse(call.options())?;
        let (key, command) = (call.arg(1)?, call.inner_command(COMMAND_AT));
        if let Some(command) = &command {
            guard::check_command(command.name())?;
            reject_foreign_keys(&mut call.ctx, key, command)?;
        }
        let flags = call.ctx.flags();
        let lease_ms = guard::check(&mut call.ctx, key, flags.into(), &request)?;
        match command {
            Some(command) => call.ctx.run(&command)?,
            None => call.ctx.reply_integer(lease_ms),
        }
        Ok(())
    }
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
