//! DLOCK.APPLY: changes of locks, from the primary or the AOF.

use dlock_core::engine::{self, Error};

use crate::redis::{Argument, Command, Invocation, KeyUse, Metadata};

/// DLOCK.APPLY key change
///
/// Internal: the outcome of a transition, from the primary to its replicas and the AOF.
pub struct Apply;

impl Command for Apply {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.apply",
        flags: c"write admin",
        arity: 3,
        summary: c"Internal: propagates a change of a lock to replicas and the append-only file.",
        complexity: c"O(N) where N is the number of holders: 1 for a mutex.",
        key: Some(KeyUse::Update),
        arguments: &[Argument::key(c"key"), Argument::string(c"change")],
        categories: "write slow admin dangerous",
        own_category: None,
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        let (key, change, flags) = (call.arg(1)?, call.arg(2)?, call.ctx.flags());
        engine::apply(&mut call.ctx, key, flags.into(), change.bytes())?;
        call.ctx.reply_ok();
        Ok(())
    }
}
