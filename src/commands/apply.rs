//! DLOCK.APPLY: changes of locks, from the primary or the AOF.

use crate::change::txn::Txn;
use crate::redis::{Argument, Call, Command, KeyUse, Metadata};
use crate::state::error::Error;

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
        is_public: false,
    };

    fn run(call: &mut Call<'_>) -> Result<(), Error> {
        let (key, change, flags) = (call.arg(1)?, call.arg(2)?, call.ctx.flags());
        let mut txn = Txn::replicated(&mut call.ctx, key, flags)?;
        let outcome = txn.apply(change.bytes());
        txn.commit(outcome)?;
        call.ctx.reply_ok();
        Ok(())
    }
}
