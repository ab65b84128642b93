use crate::commands::entry::{Call, Command, Failure};
use crate::redis::command_info::{Argument, KeyUse, Metadata};
use crate::redis::key::{Key, Value};
use crate::txn::moment;

/// DLOCK.OWNER key
///
/// Replies the owner that has held the lock the longest, null when the lock is free.
pub struct Owner;

impl Command for Owner {
    const METADATA: Metadata = Metadata {
        name: c"dlock.owner",
        flags: c"readonly fast",
        arity: 2,
        summary: c"Returns who holds a lock: of several holders the one that has held it the longest.",
        complexity: c"O(N) where N is the number of holders: 1 for a mutex.",
        key: Some(KeyUse::Read),
        arguments: &[Argument::key(c"key")],
        categories: "read fast",
        is_public: true,
    };

    fn run(call: &Call<'_>) -> Result<(), Failure> {
        let moment = moment(call.ctx.flags());
        let mut key = Key::read(call.ctx, call.key()?);
        let owner = match key.value() {
            Value::OtherType => return Err(Failure::WrongType),
            Value::Nothing => None,
            Value::Lock(stored) => stored.lock.holders().iter().find(|holder| moment.is_live(holder)),
        };
        match owner {
            Some(holder) => call.ctx.reply_bytes(holder.owner()),
            None => call.ctx.reply_null(),
        }
        Ok(())
    }
}
