//! Answers to requests that have waited: from the transition that gives them, through inboxes, to the readers.
//!
//! The core decides when a call gets its reply. Its client is woken with the name of the call, and answers go into the
//! reply only when the server asks for it: a client that is killed in the same step loses none.

use super::error::Error;
use super::host::{Flags, Host, Process};
use super::internal_error::internal_error;
use super::wait_timer;
use crate::effects::Effects;
use crate::inbox::{GrantsReply, Received, Reply};
use crate::names::Call;
use crate::time::Inputs;
use crate::wire::{Caller, Grants};

/// The error for a GRANTS that another one has replaced, or whose inbox has ended with the role of this server.
pub const SUPERSEDED: &str =
    "UNBLOCKED another call reads this inbox now, or this server is a replica now: call again";

/// Puts the answers of a transition into inboxes, and wakes their readers.
pub(super) fn deliver(process: &mut impl Process, effects: &mut Effects) {
    process.state().server.deliver(effects);
    if let Some(what) = effects.internal_error.take() {
        internal_error(process, what);
    }
    for call in effects.calls.drain(..) {
        process.wake(call);
    }
}

/// Carries out a GRANTS of this user. `None`: it waits for answers, and its client is blocked.
pub fn receive<H: Host>(
    host: &mut H,
    flags: Flags,
    user: &[u8],
    request: &Grants<'_>,
) -> Result<Option<GrantsReply>, Error> {
    if !flags.is_active_primary() {
        return Err(Error::ReadOnly);
    }
    // Nothing else of this command takes memory, and answers must be received while it is short: no `deny-oom`.
    let creates = request.cursor == 0 && host.state().server.inboxes.find(request.inbox).is_none();
    if creates && host.is_out_of_memory() {
        return Err(Error::OutOfMemory);
    }
    let (caller, environment) = (Caller { db: host.db(), user }, host.environment());
    let inputs = Inputs {
        now: host.now(),
        role: flags.role(),
        slot: None,
        must_encode: true,
        environment: &environment,
    };
    let (reply, former) = match host.state().server.receive(request, caller, &inputs)? {
        Received::Replied { reply, former } => (Some(reply), former),
        Received::Waits { call, former } => {
            host.block(call);
            (None, former)
        }
    };
    if let Some(former) = former {
        host.wake(former);
    }
    wait_timer::arm(host);
    Ok(reply)
}

/// The reply to a call that was woken, whose client is there. `None`: another call took over, or the inbox is gone.
pub fn reply(process: &mut impl Process, call: Call) -> Option<Reply> {
    let now = process.now();
    let reply = process.state().server.inboxes.reply(call, now);
    if let Some(Reply::Grants(_)) = reply {
        wait_timer::arm(process);
    }
    reply
}

/// The reply to a call that is over before its time, if it is that of a GRANTS.
pub fn reply_nothing(process: &mut impl Process, call: Call) -> Option<GrantsReply> {
    let now = process.now();
    process.state().server.inboxes.reply_nothing(call, now)
}

/// The client of a call is gone, before any reply was written.
pub fn lose_reader(process: &mut impl Process, call: Call) {
    let now = process.now();
    process.state().server.lose_reader(call, now);
    wait_timer::arm(process);
}
