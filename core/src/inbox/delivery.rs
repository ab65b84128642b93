//! The way of an answer: from its waiter into an inbox, and into the reply to a reader.

use super::answers::Answered;
use super::outcome::Reply;
use super::{Inbox, Inboxes};
use crate::effects::{Effects, Wake};
use crate::names::{Call, LockName, Ticket};
use crate::time::Instant;

impl Inboxes {
    /// Puts the answers of a transition into the inboxes of their waiters. [`Effects::calls`] are those that are to be
    /// replied to. A grant that the reply to the request itself carries is in flight no more.
    pub(crate) fn deliver(&mut self, effects: &mut Effects) {
        let now = effects.clock.now;
        let mut impossible = None;
        for wake in effects.wakes.drain(..) {
            match self.deliver_one(wake, now) {
                Ok(call) => effects.calls.extend(call),
                Err(what) => impossible = Some(what),
            }
        }
        if let Some(what) = impossible {
            effects.internal_error(what);
        }
        // After the answers: the same transition may have granted it to an earlier sending of the request.
        if let Some(request) = effects.repeated.take() {
            self.in_flight.carry(&request);
        }
    }

    /// The reply to a call whose client is there. `None`: another call took over, or the inbox is gone.
    pub fn reply(&mut self, call: Call, now: Instant) -> Option<Reply> {
        if let Some(id) = self.calls.get(&call) {
            return self.reply_to_reader(*id, now).map(Reply::Grants);
        }
        match self.remove(call.inbox_of_block())? {
            Inbox::Answered(answered) => {
                self.in_flight.carry_answered(&answered);
                Some(Reply::Answer(answered.answer))
            }
            Inbox::Waiting(..) | Inbox::Named(_) => None,
        }
    }

    /// The client of a call is gone, before any reply was written. Returns the waiter that leaves its queue with it.
    pub(crate) fn lose_reader(&mut self, call: Call, now: Instant) -> Option<(LockName, Ticket)> {
        if let Some(id) = self.calls.get(&call) {
            self.reader_left(*id, now);
            return None;
        }
        match self.remove(call.inbox_of_block())? {
            Inbox::Waiting(ticket, lock) => return Some((lock, ticket)),
            Inbox::Answered(answered) => self.in_flight.give_up(answered),
            Inbox::Named(_) => {}
        }
        None
    }

    /// Whether this answer has not come, and somebody may read it.
    pub(crate) fn awaits(&self, wake: &Wake) -> bool {
        match self.by_id.get(&wake.waiter.inbox()) {
            Some(Inbox::Named(named)) => named.waiters.contains_key(&wake.ticket),
            Some(Inbox::Waiting(ticket, _)) => *ticket == wake.ticket,
            Some(Inbox::Answered(_)) | None => false,
        }
    }

    /// Nobody gets this answer, which was made `at` that time: a grant is to be rolled back.
    pub(crate) fn give_up(&mut self, lock: LockName, wake: Wake, at: Instant) {
        let request = (wake.waiter.owner, wake.waiter.request_id);
        let answered = Answered::new(lock, request, wake.answer, self.next_cursor(), at);
        self.in_flight.add(&answered);
        self.in_flight.give_up(answered);
    }

    /// Returns the call that gets its reply now, if one waited for it; or what is impossible.
    fn deliver_one(&mut self, wake: Wake, now: Instant) -> Result<Option<Call>, &'static str> {
        let (waiter, ticket) = (wake.waiter, wake.ticket);
        let (id, cursor) = (waiter.inbox(), self.next_cursor());
        let answered =
            |lock| Answered::new(lock, (waiter.owner, waiter.request_id), wake.answer, cursor, now);
        match self.by_id.get_mut(&id) {
            Some(Inbox::Named(named)) => {
                let lock = named.waiters.remove(&ticket).ok_or(NO_WAITER)?;
                let answered = answered(lock);
                self.in_flight.add(&answered);
                named.answers.push(answered);
                self.waiters = self.waiters.saturating_sub(1);
                self.answers = self.answers.saturating_add(1);
                Ok(self.wake_reader(id))
            }
            Some(inbox) => {
                let Inbox::Waiting(_, lock) = inbox else {
                    return Err("a second answer to a BLOCK");
                };
                let answered = answered(lock.clone());
                self.in_flight.add(&answered);
                *inbox = Inbox::Answered(answered);
                Ok(Some(id.call_of_block()))
            }
            None => {
                let ended = self.ended.get_mut(&id).ok_or(NO_WAITER)?;
                let answered = answered(ended.waiters.remove(&ticket).ok_or(NO_WAITER)?);
                self.waiters = self.waiters.saturating_sub(1);
                self.in_flight.add(&answered);
                self.in_flight.give_up(answered);
                Ok(None)
            }
        }
    }
}

const NO_WAITER: &str = "an answer for an inbox that does not wait for it";
