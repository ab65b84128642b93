use dlock_core::engine::{Cause, Error, decide};

use crate::commands::CATEGORY;
use crate::redis::{Argument, Command, Invocation, KeyUse, Metadata};

/// DLOCK.RELEASE: see [`dlock_core::Release::SYNTAX`].
///
/// Replies how many holds the owner has left; 0 = it has given the lock up.
pub struct Release;

impl Command for Release {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.release",
        flags: c"write fast",
        arity: -3,
        summary: c"Releases one hold of a lock, all holds, or the hold of a request id.",
        complexity: c"O(N) where N is the number of holders: 1 for a mutex.",
        key: Some(KeyUse::Update),
        arguments: &[
            Argument::key(c"key"),
            Argument::string(c"owner"),
            Argument::integer(c"fence").token(c"FENCE").optional(),
            Argument::optional_one_of(
                c"which",
                &[
                    Argument::flag(c"all", c"ALL"),
                    Argument::string(c"id").token(c"REQID"),
                ],
            ),
        ],
        categories: "write fast",
        own_category: Some(CATEGORY),
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        let request = dlock_core::Release::parse(call.options())?;
        let (key, flags) = (call.arg(1)?, call.ctx.flags());
        let holds_left = decide(&mut call.ctx, key, flags.into(), Cause::Client, |transition| {
            transition.release(&request)
        })?;
        call.ctx.reply_integer(holds_left);
        Ok(())
    }
}
