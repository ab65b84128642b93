//! Readers of inboxes whose clients wait for a reply: a GRANTS until there are answers, a BLOCK until there is its own.
//!
//! The core decides when a call gets its reply. The client is unblocked with the name of its call, and answers go into
//! the reply only in the server's callback for it: a client that is killed in the same step loses none. Each client is
//! unblocked exactly once.

use dlock_core::{Answer, Answered, Call, Effects, Granted, GrantsReply, Reply};

use crate::redis::{Blocked, BlockedClient, BlockedId, Ctx, Gil, Token};
use crate::state::module_state::HasState;
use crate::state::{clock, wait_timer};

/// What the server calls for clients that wait. The token is the number of the call.
struct Reader;

/// Blocks the client of the running command until its call gets a reply.
pub fn block(ctx: &mut Ctx<'_>, call: Call) {
    let blocked = BlockedClient::block::<Reader>(ctx);
    ctx.state().readers.insert(call, blocked);
}

/// Has the server call for the reply to this call, soon.
pub fn wake(gil: &mut Gil<'_>, call: Call) {
    if let Some(blocked) = gil.state().readers.take(call) {
        blocked.unblock(gil, Some(call.number()));
    }
}

/// Puts the answers of a transition into inboxes, and wakes their readers.
pub fn deliver(gil: &mut Gil<'_>, effects: &mut Effects) {
    let state = gil.state();
    state.server.deliver(effects);
    if let Some(what) = effects.internal_error.take() {
        state.internal_error(what);
    }
    for call in effects.calls.drain(..) {
        wake(gil, call);
    }
}

/// `[fence, holds, lease-ms, waited-ms]`
pub fn reply_grant(ctx: &Ctx<'_>, granted: &Granted) {
    ctx.reply_array(4);
    for number in [granted.fence, granted.holds, granted.lease_ms, granted.waited_ms] {
        ctx.reply_integer(number);
    }
}

/// `[cursor, waited-ms, [answer ...]]`
pub fn reply_grants(ctx: &Ctx<'_>, reply: &GrantsReply) {
    ctx.reply_array(3);
    ctx.reply_integer(reply.cursor);
    ctx.reply_integer(reply.waited_ms);
    ctx.reply_array(reply.answers.len());
    for answered in &reply.answers {
        match &answered.answer {
            Answer::Granted(granted) => {
                reply_answered(ctx, b"granted", answered, 4);
                for number in [granted.fence, granted.holds, granted.lease_ms, granted.waited_ms] {
                    ctx.reply_integer(number);
                }
            }
            Answer::TimedOut => reply_answered(ctx, b"timeout", answered, 0),
            Answer::Withdrawn => reply_answered(ctx, b"withdrawn", answered, 0),
            Answer::Rejected(error) => reply_answered_error(ctx, answered, &error.to_string()),
            Answer::Elsewhere(error) => reply_answered_error(ctx, answered, error),
        }
    }
}

/// A string: an error inside of an array breaks client libraries.
fn reply_answered_error(ctx: &Ctx<'_>, answered: &Answered, error: &str) {
    reply_answered(ctx, b"error", answered, 1);
    ctx.reply_bytes(error.as_bytes());
}

/// `kind id key owner`, and `more` that follow.
fn reply_answered(ctx: &Ctx<'_>, kind: &[u8], answered: &Answered, more: usize) {
    ctx.reply_array(more.saturating_add(4));
    ctx.reply_bytes(kind);
    ctx.reply_bytes(answered.request_id.as_deref().unwrap_or_default());
    ctx.reply_bytes(&answered.name.key);
    ctx.reply_bytes(&answered.owner);
}

/// The reply to the client of a BLOCK.
fn reply_answer(ctx: &Ctx<'_>, answer: &Answer) {
    match answer {
        Answer::Granted(granted) => reply_grant(ctx, granted),
        Answer::TimedOut | Answer::Withdrawn => ctx.reply_null_array(),
        Answer::Rejected(error) => ctx.reply_error(&error.to_string()),
        Answer::Elsewhere(error) => ctx.reply_error(error),
    }
}

/// A call ends before any reply, if the client still waits.
fn leave(gil: &mut Gil<'_>, call: Option<Call>) {
    let state = gil.state();
    if let Some(call) = call
        && let Some(blocked) = state.readers.take(call)
    {
        state.server.lose_reader(call, clock::now());
        blocked.unblock(gil, None);
        wait_timer::arm(gil);
    }
}

/// For a GRANTS that another one has replaced, or whose inbox has ended with the role of this server.
const SUPERSEDED: &str =
    "UNBLOCKED another call reads this inbox now, or this server is a replica now: call again";

impl Blocked for Reader {
    fn reply(token: Option<Token>, ctx: &mut Ctx<'_>) {
        let call = token.map(Call::from_number);
        match call.and_then(|call| ctx.state().server.inboxes.reply(call, clock::now())) {
            Some(Reply::Answer(answer)) => reply_answer(ctx, &answer),
            Some(Reply::Grants(reply)) => {
                reply_grants(ctx, &reply);
                wait_timer::arm(ctx);
            }
            None => ctx.reply_error(SUPERSEDED),
        }
    }

    fn unblocked(ctx: &mut Ctx<'_>, id: BlockedId) {
        let state = ctx.state();
        let call = state.readers.call_of(id);
        match call.and_then(|call| state.server.inboxes.reply_nothing(call, clock::now())) {
            Some(reply) => reply_grants(ctx, &reply),
            None => ctx.reply_null_array(),
        }
        leave(ctx, call);
    }

    fn disconnected(ctx: &mut Ctx<'_>, id: BlockedId) {
        let call = ctx.state().readers.call_of(id);
        leave(ctx, call);
    }

    fn free(token: Token, gil: &mut Gil<'_>, is_gone: bool) {
        if is_gone {
            let call = Call::from_number(token);
            gil.state().server.lose_reader(call, clock::now());
            wait_timer::arm(gil);
        }
    }
}
