//! Clients that wait for a reply: a GRANTS until there are answers, a BLOCK until there is its own.
//!
//! The client is unblocked with the name of its call, and answers go into the reply only in the server's callback for it:
//! a client that is killed in the same step loses none. Each client is unblocked exactly once.

use dlock_core::engine::answering;
use dlock_core::{Call, Reply};

use crate::host::reply::{reply_answer, reply_grants};
use crate::host::state::module_state;
use crate::redis::{Blocked, BlockedClient, BlockedId, Ctx, Gil, Token};

/// What the server calls for clients that wait. The token is the number of the call.
struct Reader;

/// Blocks the client of the running command until its call gets a reply.
pub fn block(ctx: &mut Ctx<'_>, call: Call) {
    let blocked = BlockedClient::block::<Reader>(ctx);
    module_state(ctx).readers.insert(call, blocked);
}

/// Has the server call for the reply to this call, soon.
pub fn wake(gil: &mut Gil<'_>, call: Call) {
    if let Some(blocked) = module_state(gil).readers.take(call) {
        blocked.unblock(gil, Some(call.number()));
    }
}

/// A call ends before any reply, if the client still waits.
fn leave(gil: &mut Gil<'_>, call: Option<Call>) {
    if let Some(call) = call
        && let Some(blocked) = module_state(gil).readers.take(call)
    {
        answering::lose_reader(gil, call);
        blocked.unblock(gil, None);
    }
}

impl Blocked for Reader {
    fn reply(token: Option<Token>, ctx: &mut Ctx<'_>) {
        let call = token.map(Call::from_number);
        match call.and_then(|call| answering::reply(ctx, call)) {
            Some(Reply::Answer(answer)) => reply_answer(ctx, &answer),
            Some(Reply::Grants(reply)) => reply_grants(ctx, &reply),
            None => ctx.reply_error(answering::SUPERSEDED),
        }
    }

    fn unblocked(ctx: &mut Ctx<'_>, id: BlockedId) {
        let call = module_state(ctx).readers.call_of(id);
        match call.and_then(|call| answering::reply_nothing(ctx, call)) {
            Some(reply) => reply_grants(ctx, &reply),
            None => ctx.reply_null_array(),
        }
        leave(ctx, call);
    }

    fn disconnected(ctx: &mut Ctx<'_>, id: BlockedId) {
        let call = module_state(ctx).readers.call_of(id);
        leave(ctx, call);
    }

    fn free(token: Token, gil: &mut Gil<'_>, is_gone: bool) {
        if is_gone {
            answering::lose_reader(gil, Call::from_number(token));
        }
    }
}
