use dlock_core::engine::{Error, LockValue, begin_read};

use crate::commands::CATEGORY;
use crate::redis::{Argument, Command, Invocation, KeyUse, Metadata, ReadKey, Value};

/// DLOCK.OWNER key
///
/// Replies the owner that has held the lock the longest, null when the lock is free.
pub struct Owner;

impl Command for Owner {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.owner",
        flags: c"readonly fast",
        arity: 2,
        summary:
            c"Returns the owner that holds a lock; of several holders, the one that has held it longest.",
        complexity: c"O(N) where N is the number of holders: 1 for a mutex.",
        key: Some(KeyUse::Read),
        arguments: &[Argument::key(c"key")],
        categories: "read fast",
        own_category: Some(CATEGORY),
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        let (name, flags) = (call.arg(1)?, call.ctx.flags());
        let clock = begin_read(&mut call.ctx, flags.into());
        let key = ReadKey::<LockValue>::open(&mut call.ctx, name);
        let owner = match key.value() {
            Value::OtherType => return Err(Error::WrongType),
            Value::Nothing => None,
            Value::Ours(value) => value.lock.live_holders(clock).next(),
        };
        match owner {
            Some(holder) => key.ctx().reply_bytes(holder.owner()),
            None => key.ctx().reply_null(),
        }
        Ok(())
    }
}
