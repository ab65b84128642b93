//! DLOCK.GRANTS: a reader makes an inbox, acknowledges what it has, and receives what follows.

use std::rc::Rc;

use super::answers::Answered;
use super::named::{Named, Reader};
use super::{Call, Inbox, InboxId, Inboxes};
use crate::error::{Error, Full};
use crate::inputs::Inputs;
use crate::request::{Caller, Grants};
use crate::server_state::ServerState;
use crate::time::Instant;

/// The reply to a GRANTS.
#[derive(Clone, Debug)]
pub struct GrantsReply {
    /// Acknowledges these answers in the next call.
    pub cursor: u64,
    /// How long the call waited, rounded down.
    pub waited_ms: u64,
    /// The answers that are not acknowledged, oldest first: as many as a reply carries.
    pub answers: Vec<Answered>,
}

/// What became of a GRANTS.
#[derive(Clone, Debug)]
pub struct Received {
    /// An earlier call of this inbox, which is over now.
    pub former: Option<Call>,
    /// The reply, or the call that waits for it.
    pub reply: Result<GrantsReply, Call>,
}

impl ServerState {
    /// Carries out a GRANTS. A request that is rejected changes nothing.
    pub fn receive(
        &mut self,
        request: &Grants<'_>,
        caller: Caller<'_>,
        inputs: &Inputs<'_>,
    ) -> Result<Received, Error> {
        let id = match self.inboxes.by_name.get(request.inbox) {
            Some(id) => self.inboxes.continue_reading(*id, request, caller)?,
            None if request.cursor > 0 => return Err(Error::NoInbox),
            None => {
                let max = self.policy.max_waiters;
                let waiting = self.wait_table.waiters().saturating_add(self.inboxes.kept());
                if waiting >= max {
                    return Err(Error::QueueFull(Full::Server(max)));
                }
                self.seed_cursors(inputs);
                self.inboxes.make(request.inbox, caller, inputs.now)
            }
        };
        self.inboxes.call(id, request, inputs.now).ok_or(Error::NoInbox)
    }

    /// Before the first cursor is given out: it must be above those that this server gave out before it started.
    fn seed_cursors(&mut self, inputs: &Inputs<'_>) {
        if !self.inboxes.is_seeded {
            let (clock, random) = (inputs.environment.wall_clock(), inputs.environment.random());
            let first = self.fences.first_cursor(clock, random);
            self.inboxes.last_cursor = self.inboxes.last_cursor.max(first);
            self.inboxes.is_seeded = true;
        }
    }

    /// The reply without any answer to a call that is over before its time. `None`: another call took over, or the inbox
    /// is gone.
    pub fn reply_nothing(&mut self, call: Call, now: Instant) -> Option<GrantsReply> {
        let id = *self.inboxes.calls.get(&call)?;
        let named = self.inboxes.named(id)?;
        let (cursor, waited_ms) = (named.answers.acknowledged(), named.waited_ms(now));
        self.inboxes.reader_left(id, now);
        Some(GrantsReply {
            cursor,
            waited_ms,
            answers: Vec::new(),
        })
    }
}

impl Inboxes {
    fn make(&mut self, name: &[u8], caller: Caller<'_>, now: Instant) -> InboxId {
        let (name, id): (Rc<[u8]>, _) = (name.into(), InboxId(self.next_id()));
        let first = self.next_cursor();
        // Its first call is under way.
        let reader = Reader::Replying {
            call: Call(self.next_id()),
            since: now,
        };
        let named = Named::new(Rc::clone(&name), caller, first, reader);
        self.by_id.insert(id, Inbox::Named(Box::new(named)));
        self.by_name.insert(name, id);
        id
    }

    /// Acknowledges the last reply.
    fn continue_reading(
        &mut self,
        id: InboxId,
        request: &Grants<'_>,
        caller: Caller<'_>,
    ) -> Result<InboxId, Error> {
        let named = self.named(id).ok_or(Error::NoInbox)?;
        named.check(caller)?;
        if request.cursor > 0 {
            let acknowledged = named.answers.acknowledge(request.cursor)?;
            named.is_read = true;
            self.answers = self.answers.saturating_sub(acknowledged);
        } else if named.is_read {
            return Err(Error::BusyInbox);
        }
        Ok(id)
    }

    /// The reader replies, or waits.
    fn call(&mut self, id: InboxId, request: &Grants<'_>, now: Instant) -> Option<Received> {
        let call = Call(self.next_id());
        let named = self.named(id)?;
        named.ttl_ms = request.ttl_ms.unwrap_or(named.ttl_ms);
        let block_ms = request.block_ms;
        let block_ms = block_ms.filter(|_| request.cursor > 0 && named.answers.is_empty());
        let former = self.wake_reader(id);
        let reply = if let Some(ms) = block_ms {
            let (since, until) = (now, now.after_ms(ms));
            self.set_reader(id, Reader::Blocked { call, since, until });
            Err(call)
        } else {
            self.set_reader(id, Reader::Replying { call, since: now });
            Ok(self.reply_to_reader(id, now)?)
        };
        Some(Received { former, reply })
    }

    /// The reply to the current call of this inbox. It carries answers from now on.
    pub(super) fn reply_to_reader(&mut self, id: InboxId, now: Instant) -> Option<GrantsReply> {
        let Inbox::Named(named) = self.by_id.get_mut(&id)? else {
            return None;
        };
        let waited_ms = named.waited_ms(now);
        let (cursor, answers) = named.answers.reply(now);
        for answered in &answers {
            self.in_flight.carry_answered(answered);
        }
        self.reader_left(id, now);
        Some(GrantsReply {
            cursor,
            waited_ms,
            answers,
        })
    }

    /// Nobody reads this inbox from now on.
    pub(super) fn reader_left(&mut self, id: InboxId, now: Instant) {
        let clock = self.pauses.clock(now);
        let Some(named) = self.named(id) else {
            return;
        };
        if named.ttl_ms == 0 {
            self.end(id);
            return;
        }
        let until = clock.after_ms(named.ttl_ms);
        self.set_reader(
            id,
            Reader::Absent {
                until,
                is_last_pass: false,
            },
        );
    }
}
