use dlock_core::engine::{Error, answering};

use crate::commands::CATEGORY;
use crate::host::reply::reply_grants;
use crate::redis::{Argument, Command, Invocation, Metadata};

/// DLOCK.GRANTS: see [`dlock_core::Grants::SYNTAX`].
///
/// Acknowledges the reply with this cursor, and replies `[cursor, waited-ms, [answer ...]]`: the answers after it, oldest
/// first, at most 1 000 or about 256 kB. With BLOCK the client waits if there are none. Cursor 0 makes the inbox.
pub struct Grants;

impl Command for Grants {
    type Error = Error;

    const METADATA: Metadata = Metadata {
        name: c"dlock.grants",
        flags: c"blocking",
        arity: -3,
        summary: c"Receives the answers to queued requests, and acknowledges those of the last reply.",
        complexity: c"O(N) where N is the number of answers.",
        key: None,
        arguments: &[
            Argument::string(c"inbox"),
            Argument::integer(c"cursor"),
            Argument::integer(c"timeout-ms").token(c"BLOCK").optional(),
            Argument::integer(c"ttl-ms").token(c"TTL").optional(),
        ],
        categories: "slow blocking",
        own_category: Some(CATEGORY),
    };

    fn run(call: &mut Invocation<'_>) -> Result<(), Error> {
        let mut request = dlock_core::Grants::parse(call.arg(1)?.bytes(), call.options())?;
        let ctx = &mut call.ctx;
        let flags = ctx.flags();
        if !flags.can_block() {
            request.block_ms = None;
        }
        let user = ctx.user();
        if let Some(reply) = answering::receive(ctx, flags.into(), &user, &request)? {
            reply_grants(ctx, &reply);
        }
        Ok(())
    }
}
