//! How inboxes end: when nobody reads them any more, and when this server is a replica from now on.

use super::answers::Answers;
use super::named::{Absence, Reader};
use super::{Call, Inbox, InboxId, Inboxes, Waiters};
use crate::server_state::ServerState;
use crate::time::Instant;

/// An inbox that has ended, until its waiters have left and its grants are given up: a slice at a time.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) waiters: Waiters,
    answers: Answers,
}

/// How long the server has for requests that have arrived when the time of an inbox is over: more than the module takes
/// in one pass of the server's loop.
const LAST_PASS_MS: u64 = 10;
/// How soon to look again while clients are paused.
const PAUSED_MS: u64 = 50;

impl ServerState {
    /// Ends the calls whose time is over, and the inboxes without a reader. Returns the calls that are to be replied to, by
    /// [`ServerState::reply`].
    pub fn process_inboxes(&mut self, is_paused: bool, now: Instant) -> Vec<Call> {
        let inboxes = &mut self.inboxes;
        inboxes.pauses.look(is_paused, now);
        let mut calls = Vec::new();
        while let Some(&(_, id)) = inboxes.deadlines.first().filter(|(at, _)| *at <= now) {
            calls.extend(inboxes.process(id, now));
        }
        calls
    }

    /// Has a waiter of an inbox that has ended leave its queue, or gives up a grant that no reply carried. False if there
    /// is nothing left to do.
    pub fn clear_ended(&mut self) -> bool {
        let inboxes = &mut self.inboxes;
        let Some(mut entry) = inboxes.ended.first_entry() else {
            return false;
        };
        let ended = entry.get_mut();
        if let Some((ticket, lock)) = ended.waiters.pop_first() {
            inboxes.waiters = inboxes.waiters.saturating_sub(1);
            self.wait_table.remove_waiter(lock.as_ref(), ticket);
        } else if let Some(answered) = ended.answers.pop() {
            inboxes.answers = inboxes.answers.saturating_sub(1);
            if !ended.answers.is_carried(&answered) {
                inboxes.in_flight.give_up(answered);
            }
        } else {
            entry.remove();
        }
        true
    }

    /// Ends all inboxes: this server does not grant any more. Returns the calls that are to be replied to.
    pub(crate) fn end_inboxes(&mut self) -> Vec<Call> {
        let ids: Vec<InboxId> = self.inboxes.by_name.values().copied().collect();
        let calls = ids.into_iter().filter_map(|id| {
            let call = self.inboxes.named(id)?.reader.blocked();
            self.inboxes.end(id);
            call
        });
        calls.collect()
    }
}

impl Inboxes {
    /// When something is due here.
    pub fn next_wakeup(&self) -> Option<Instant> {
        if !self.ended.is_empty() {
            return Some(Instant::DISTANT_PAST);
        }
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// The deadline of an inbox has passed: its call is over, or it ends, or its deadline is moved.
    fn process(&mut self, id: InboxId, now: Instant) -> Option<Call> {
        let (is_paused, paused) = (self.pauses.is_paused(), self.pauses.total());
        let named = self.named(id)?;
        if let Some(call) = named.reader.wake() {
            self.set_deadline(id, None);
            return Some(call);
        }
        let Reader::Absent(absence) = &mut named.reader else {
            self.set_deadline(id, None);
            return None;
        };
        let expires = absence.expires(named.ttl_ms, paused);
        let next = if is_paused {
            absence.is_last_pass = false;
            now.after_ms(PAUSED_MS)
        } else if expires > now {
            expires
        } else if !absence.is_last_pass {
            absence.is_last_pass = true;
            now.after_ms(LAST_PASS_MS)
        } else {
            self.end(id);
            return None;
        };
        self.set_deadline(id, Some(next));
        None
    }

    /// Its name is free from now on. What it leaves is done by [`ServerState::clear_ended`].
    pub(super) fn end(&mut self, id: InboxId) {
        self.set_deadline(id, None);
        if let Some(Inbox::Named(named)) = self.by_id.remove(&id) {
            self.by_name.remove(&named.name);
            self.forget_call(named.reader);
            self.ended_total = self.ended_total.wrapping_add(1);
            let ended = Ended {
                waiters: named.waiters,
                answers: named.answers,
            };
            self.ended.insert(id, ended);
        }
    }
}

impl Absence {
    /// When the inbox ends, if clients have been `paused` for so long until now.
    fn expires(&self, ttl_ms: u64, paused: i64) -> Instant {
        let end = self.since.after_ms(ttl_ms).as_micros();
        Instant::from_micros(end.saturating_add(paused.saturating_sub(self.paused)))
    }
}
