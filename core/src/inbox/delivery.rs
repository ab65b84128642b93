//! The way of an answer: from its waiter into an inbox, and into the reply to a reader.

use super::answers::Answered;
use super::reading::GrantsReply;
use super::{Call, Inbox, InboxId, Inboxes};
use crate::effects::{Answer, Effects, Wake};
use crate::server_state::ServerState;
use crate::time::Instant;

/// The reply to a call that waited.
#[derive(Clone, Debug)]
pub enum Reply {
    /// To the client of a BLOCK.
    Answer(Answer),
    /// To a GRANTS.
    Grants(GrantsReply),
}

impl ServerState {
    /// Puts the answers of a transition into the inboxes of their waiters. [`Effects::calls`] are those that are to be
    /// replied to, by [`ServerState::reply`]. A grant that the reply to the request itself carries is in flight no more.
    #[inline]
    pub fn deliver(&mut self, effects: &mut Effects) {
        if effects.wakes.is_empty() && effects.repeated.is_none() {
            return;
        }
        let now = effects.clock.now;
        for wake in effects.wakes.drain(..) {
            effects.calls.extend(self.inboxes.deliver(wake, now));
        }
        // After the answers: the same transition may have granted it to an earlier sending of the request.
        if let Some(request) = effects.repeated.take() {
            self.inboxes.in_flight.carry(&request);
        }
    }

    /// The reply to a call whose client is there. `None`: another call took over, or the inbox is gone.
    pub fn reply(&mut self, call: Call, now: Instant) -> Option<Reply> {
        let inboxes = &mut self.inboxes;
        if let Some(id) = inboxes.calls.get(&call) {
            return inboxes.reply_to_reader(*id, now).map(Reply::Grants);
        }
        match inboxes.by_id.remove(&InboxId(call.0))? {
            Inbox::Answered(answered) => {
                inboxes.in_flight.carry_answered(&answered);
                Some(Reply::Answer(answered.answer))
            }
            Inbox::Waiting(..) | Inbox::Named(_) => None,
        }
    }

    /// The client of a call is gone, before any reply was written.
    pub fn lose_reader(&mut self, call: Call, now: Instant) {
        let inboxes = &mut self.inboxes;
        if let Some(id) = inboxes.calls.get(&call) {
            inboxes.reader_left(*id, now);
            return;
        }
        match inboxes.by_id.remove(&InboxId(call.0)) {
            Some(Inbox::Waiting(ticket, lock)) => self.wait_table.remove_waiter(lock.as_ref(), ticket),
            Some(Inbox::Answered(answered)) => inboxes.in_flight.give_up(answered),
            Some(Inbox::Named(_)) | None => {}
        }
    }
}

impl Inboxes {
    /// Returns the call that gets its reply now, if one waited for it.
    fn deliver(&mut self, wake: Wake, now: Instant) -> Option<Call> {
        let Wake {
            ticket,
            waiter,
            answer,
        } = wake;
        let (id, cursor) = (waiter.inbox(), self.next_cursor());
        let request = (waiter.owner, waiter.request_id);
        match self.by_id.get_mut(&id) {
            Some(Inbox::Named(named)) => {
                let lock = named.waiters.remove(&ticket)?;
                let answered = Answered::new(lock, request, answer, cursor, now);
                self.in_flight.add(&answered);
                named.answers.push(answered);
                self.waiters = self.waiters.saturating_sub(1);
                self.answers = self.answers.saturating_add(1);
                self.wake_reader(id)
            }
            Some(inbox) => {
                let Inbox::Waiting(_, lock) = inbox else {
                    return None;
                };
                let answered = Answered::new(lock.clone(), request, answer, cursor, now);
                self.in_flight.add(&answered);
                *inbox = Inbox::Answered(answered);
                Some(id.call_of_block())
            }
            None => {
                let lock = self.ended.get_mut(&id)?.waiters.remove(&ticket)?;
                let answered = Answered::new(lock, request, answer, cursor, now);
                self.waiters = self.waiters.saturating_sub(1);
                self.in_flight.add(&answered);
                self.in_flight.give_up(answered);
                None
            }
        }
    }
}
