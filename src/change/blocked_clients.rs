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

use dlock_core::{Acquire, Answer, Effects, Enqueued, Error, Ticket};

use crate::redis::{
    Blocked, BlockedClient, BlockedId, CommandError, Ctx, Gil, client_id, close_client, may_lose_reply,
};
use crate::state::clients::{Client, Reply};
use crate::state::error;
use crate::state::wait_timer;

/// Keeps a client that was just blocked until its ticket has an answer.
pub fn park(gil: &mut Gil<'_>, blocked: BlockedClient<Client>, waiter: &Enqueued, request: &Acquire<'_>) {
    let client = Box::new(Client::new(waiter, request));
    gil.state().clients.insert(blocked, client);
}

/// Answers a client whose request was replaced by another one with the same request id.
pub fn replace(gil: &mut Gil<'_>, ticket: Ticket) {
    answer(gil, ticket, Reply::Answer(Answer::Refused(Error::Replaced)));
}

/// Sends the clients the answers of a transition.
pub fn wake(gil: &mut Gil<'_>, effects: &mut Effects) {
    for wake in effects.wakes.drain(..) {
        gil.state().counters.answered(&wake.answer);
        answer(gil, wake.ticket, Reply::Answer(wake.answer));
    }
}

/// Answers the same clients with an error: the transition came to nothing.
pub fn fail(gil: &mut Gil<'_>, effects: &mut Effects, error: &str) {
    for wake in effects.wakes.drain(..) {
        answer(gil, wake.ticket, Reply::Error(error.to_owned()));
    }
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

/// A client stops waiting without an answer; whether it still waited.
fn remove(gil: &mut Gil<'_>, id: BlockedId) -> bool {
    let state = gil.state();
    let Some((blocked, client)) = state.clients.take_by_id(id) else {
        return false;
    };
    state
        .engine
        .wait_table
        .remove_waiter(client.name.as_ref(), client.ticket);
    blocked.unblock(gil, None);
    wait_timer::arm(gil);
    true
}

impl Blocked for Client {
    fn reply(client: Option<&Self>, ctx: &mut Ctx<'_>) {
        match client.and_then(|client| client.reply.as_ref()) {
            Some(Reply::Answer(Answer::Granted(granted))) => ctx.reply_grant(granted),
            Some(Reply::Answer(Answer::Refused(error))) => error::Error::from(error.clone()).reply(ctx),
            Some(Reply::Error(error)) => ctx.reply_error(error),
            Some(Reply::Answer(Answer::TimedOut | Answer::Withdrawn)) | None => ctx.reply_null_array(),
        }
    }

    fn unblocked(ctx: &mut Ctx<'_>, id: BlockedId) {
        ctx.reply_null_array();
        remove(ctx, id);
    }

    fn disconnected(ctx: &mut Ctx<'_>, id: BlockedId) {
        if !remove(ctx, id) && may_lose_reply() {
            let client = client_id(ctx);
            ctx.state().clients.stranded_clients.push(client);
        }
    }

    fn free(self: Box<Self>, gil: &mut Gil<'_>, is_gone: bool) {
        if is_gone {
            // These would wait for a reply until they time out. Most have closed their connections by themselves.
            for client in std::mem::take(&mut gil.state().clients.stranded_clients) {
                close_client(gil, client);
            }
        }
        let state = gil.state();
        if let Some(grant) = state.clients.finish(*self, is_gone) {
            state.grants_to_roll_back.push_back(grant);
            wait_timer::arm(gil);
        }
    }
}
