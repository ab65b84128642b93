//! Blocked clients, from BLOCK to their reply.
//!
//! A client is in one state at a time, and the first to end it wins:
//!
//! ```text
//! waiting -> answered   its ticket got an answer: the server calls `reply`, then `free`
//!         -> gone       closed, killed, unblocked by CLIENT UNBLOCK, or the server changed its role
//! ```
//!
//! In both cases it is unblocked exactly once. An answered client may vanish before `reply`: then only `free` is
//! called, and a grant has to be rolled back.

use dlock_core::{Answer, Error, Granted, Parked, Ticket};

use crate::redis::{Blocked, BlockedClient, BlockedId, CommandError, Ctx, Gil};
use crate::state::clients::{Client, Reply};
use crate::state::module_state::HasState;
use crate::state::{error, wait_timer};

/// Blocks the client of the running command until its ticket has an answer.
pub fn park(ctx: &mut Ctx<'_>, request: Parked) {
    if request.replaced {
        answer(
            ctx,
            request.ticket,
            Reply::Answer(Answer::Rejected(Error::Replaced)),
        );
    }
    let blocked = BlockedClient::block(ctx);
    let client = Client { request, reply: None };
    ctx.state().clients.insert(blocked, Box::new(client));
}

/// Sends a client that waits its reply.
pub fn answer(gil: &mut Gil<'_>, ticket: Ticket, reply: Reply) {
    let clients = &mut gil.state().clients;
    let Some((blocked, mut client)) = clients.take(ticket) else {
        return;
    };
    if let Reply::Answer(Answer::Granted(_)) = &reply {
        clients.send(&client);
    }
    client.reply = Some(reply);
    blocked.unblock(gil, Some(client));
}

/// `[fence, holds, lease-ms, waited-ms]`
pub fn reply_grant(ctx: &Ctx<'_>, granted: &Granted) {
    ctx.reply_array(4);
    for number in [granted.fence, granted.holds, granted.lease_ms, granted.waited_ms] {
        ctx.reply_integer(number);
    }
}

/// A client stops waiting without an answer, if it still waits.
fn remove(gil: &mut Gil<'_>, id: BlockedId) {
    let state = gil.state();
    let Some((blocked, client)) = state.clients.take_by_id(id) else {
        return;
    };
    state
        .server
        .wait_table
        .remove_waiter(client.request.name.as_ref(), client.request.ticket);
    blocked.unblock(gil, None);
    wait_timer::arm(gil);
}

impl Blocked for Client {
    fn reply(client: Option<&Self>, ctx: &mut Ctx<'_>) {
        match client.and_then(|client| client.reply.as_ref()) {
            Some(Reply::Answer(Answer::Granted(granted))) => reply_grant(ctx, granted),
            Some(Reply::Answer(Answer::Rejected(error))) => error::Error::from(error.clone()).reply(ctx),
            Some(Reply::Error(error)) => ctx.reply_error(error),
            Some(Reply::Answer(Answer::TimedOut | Answer::Withdrawn)) | None => ctx.reply_null_array(),
        }
    }

    fn unblocked(ctx: &mut Ctx<'_>, id: BlockedId) {
        ctx.reply_null_array();
        remove(ctx, id);
    }

    fn disconnected(ctx: &mut Ctx<'_>, id: BlockedId) {
        remove(ctx, id);
    }

    fn free(self: Box<Self>, gil: &mut Gil<'_>, is_gone: bool) {
        let state = gil.state();
        if let Some(grant) = state.clients.finish(*self, is_gone) {
            state.grants_to_roll_back.push_back(grant);
            wait_timer::arm(gil);
        }
    }
}
