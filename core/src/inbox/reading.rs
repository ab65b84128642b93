//! DLOCK.GRANTS: a reader makes an inbox, acknowledges what it has, and receives what follows.

use std::rc::Rc;

use super::named::{LAST_PASSES, Named, Reader};
use super::outcome::{GrantsReply, Received};
use super::{Inbox, Inboxes};
use crate::names::{Call, InboxId};
use crate::time::Instant;
use crate::wire::{Caller, Error, Grants};

impl Inboxes {
    /// Carries out a GRANTS. A new inbox is made if there is room for one, and cursors begin above `first_cursor`, unless
    /// they have begun. A request that is rejected changes nothing.
    pub(crate) fn receive(
        &mut self,
        request: &Grants<'_>,
        caller: Caller<'_>,
        now: Instant,
        room: Result<(), Error>,
        first_cursor: impl FnOnce() -> u64,
    ) -> Result<Received, Error> {
        let id = match self.find(request.inbox) {
            Some(id) => self.continue_reading(id, request, caller)?,
            None if request.cursor > 0 => return Err(Error::NoInbox),
            None => {
                room?;
                if !self.is_seeded {
                    self.last_cursor = self.last_cursor.max(first_cursor());
                    self.is_seeded = true;
                }
                self.make(request.inbox, caller, now)
            }
        };
        self.call(id, request, now).ok_or(Error::NoInbox)
    }

    /// The reply without any answer to a call that is over before its time. `None`: another call took over, or the inbox
    /// is gone.
    pub fn reply_nothing(&mut self, call: Call, now: Instant) -> Option<GrantsReply> {
        let id = *self.calls.get(&call)?;
        let named = self.named(id)?;
        let (cursor, waited_ms) = (named.answers.acknowledged(), named.waited_ms(now));
        self.reader_left(id, now);
        Some(GrantsReply {
            cursor,
            waited_ms,
            answers: Vec::new(),
        })
    }

    fn make(&mut self, name: &[u8], caller: Caller<'_>, now: Instant) -> InboxId {
        let (name, id): (Rc<[u8]>, _) = (name.into(), InboxId::new(self.next_id()));
        let first = self.next_cursor();
        // Its first call is under way.
        let reader = Reader::Replying {
            call: Call::from_number(self.next_id()),
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
        let call = Call::from_number(self.next_id());
        let named = self.named(id)?;
        named.ttl_ms = request.ttl_ms.unwrap_or(named.ttl_ms);
        let block_ms = request.block_ms;
        let block_ms = block_ms.filter(|_| request.cursor > 0 && named.answers.is_empty());
        let former = self.wake_reader(id);
        Some(if let Some(ms) = block_ms {
            let (since, until) = (now, now.after_ms(ms));
            self.set_reader(id, Reader::Blocked { call, since, until });
            Received::Waits { call, former }
        } else {
            self.set_reader(id, Reader::Replying { call, since: now });
            let reply = self.reply_to_reader(id, now)?;
            Received::Replied { reply, former }
        })
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
                passes_left: LAST_PASSES,
            },
        );
    }
}
