use dlock_core::{Caller, Received};

use crate::background::gate::PROBE;
use crate::change::readers;
use crate::commands::CATEGORY;
use crate::redis::{Argument, Call, Command, Metadata};
use crate::state::error::Error;
use crate::state::inputs::inputs;
use crate::state::module_state::HasState;
use crate::state::wait_timer;

/// DLOCK.GRANTS inbox cursor [BLOCK timeout-ms] [TTL ttl-ms]
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
        since: c"0.1.0",
    };

    fn run(call: &mut Call<'_>) -> Result<(), Error> {
        let mut request = dlock_core::Grants::parse(call.arg(1)?.bytes(), call.options())?;
        let ctx = &mut call.ctx;
        let flags = ctx.flags();
        if !flags.is_active_primary() {
            return Err(Error::ReadOnly);
        }
        if !flags.can_block() {
            request.block_ms = None;
        }
        // Nothing else of this command takes memory, and answers must be received while it is short: no `deny-oom`.
        let creates = request.cursor == 0 && ctx.state().server.inboxes.find(request.inbox).is_none();
        if creates && ctx.is_out_of_memory(PROBE) {
            return Err(Error::OutOfMemory);
        }
        let (db, user) = (ctx.db(), ctx.user());
        let caller = Caller { db, user: &user };
        let inputs = inputs(flags, None, true);
        let former = match ctx.state().server.receive(&request, caller, &inputs)? {
            Received::Replied { reply, former } => {
                readers::reply_grants(ctx, &reply);
                former
            }
            Received::Waits { call, former } => {
                readers::block(ctx, call);
                former
            }
        };
        if let Some(former) = former {
            readers::wake(ctx, former);
        }
        wait_timer::arm(ctx);
        Ok(())
    }
}
