//! How inboxes end: when nobody reads them any more, and when this server is a replica from now on.

use std::collections::BTreeSet;

use super::answers::Answers;
use super::named::Reader;
use super::{Call, Inbox, InboxId, Inboxes, Waiters};
use crate::server_state::ServerState;
use crate::time::Instant;

/// An inbox that has ended, until its waiters have left and its grants are given up: a slice at a time.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) waiters: Waiters,
    answers: Answers,
}

/// What was due in inboxes, and is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxStep {
    /// The time of this call is over: it is to be replied to, by [`ServerState::reply`].
    Reply(Call),
    /// An inbox came nearer to its end, or a waiter of one that has ended has left, or a grant is to be rolled back.
    Done,
}

/// How long the server has for requests that have arrived when the time of an inbox is over: more than the module takes
/// in one pass of the server's loop.
const LAST_PASS_MS: u64 = 10;

impl ServerState {
    /// Takes note of whether clients are paused. Meanwhile no inbox ends for want of a reader.
    pub fn look_at_pauses(&mut self, is_paused: bool, now: Instant) {
        self.inboxes.pauses.look(is_paused, now);
    }

    /// Does one of the things that are due in inboxes; `None` if nothing is.
    pub fn process_inboxes(&mut self, now: Instant) -> Option<InboxStep> {
        let inboxes = &mut self.inboxes;
        if let Some((_, id)) = first_due(&inboxes.call_ends, now) {
            return inboxes.wake_reader(id).map(InboxStep::Reply);
        }
        if let Some((_, id)) = first_due(&inboxes.absence_ends, inboxes.pauses.clock(now)) {
            inboxes.end_absence(id, now);
            return Some(InboxStep::Done);
        }
        self.clear_ended().then_some(InboxStep::Done)
    }

    /// Has a waiter of an inbox that has ended leave its queue, or gives up a grant that no reply carried. False if there
    /// is nothing left to do.
    fn clear_ended(&mut self) -> bool {
        let inboxes = &mut self.inboxes;
        let Some(mut entry) = inboxes.ended.first_entry() else {
            return false;
        };
        let ended = entry.get_mut();
        // The last first: each queue becomes due once, when the first waiter leaves.
        if let Some((ticket, lock)) = ended.waiters.pop_last() {
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
            let call = self.inboxes.wake_reader(id);
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
        let call_end = self.call_ends.first().map(|(at, _)| *at);
        let absence_end = self.absence_ends.first();
        let absence_end = absence_end.map(|(at, _)| self.pauses.next_look(*at));
        call_end.into_iter().chain(absence_end).min()
    }

    /// Nobody has read this inbox for its whole time to live: it ends after one more pass of the server's loop.
    fn end_absence(&mut self, id: InboxId, now: Instant) {
        let until = self.pauses.clock(now).after_ms(LAST_PASS_MS);
        match self.named(id).map(|named| named.reader) {
            Some(Reader::Absent {
                is_last_pass: false, ..
            }) => self.set_reader(
                id,
                Reader::Absent {
                    until,
                    is_last_pass: true,
                },
            ),
            Some(_) | None => self.end(id),
        }
    }

    /// Its name is free from now on. What it leaves is cleared a step at a time.
    pub(super) fn end(&mut self, id: InboxId) {
        if let Some(Inbox::Named(named)) = self.by_id.remove(&id) {
            self.forget_reader(id, named.reader);
            self.by_name.remove(&named.name);
            self.ended_total = self.ended_total.wrapping_add(1);
            let ended = Ended {
                waiters: named.waiters,
                answers: named.answers,
            };
            self.ended.insert(id, ended);
        }
    }
}

fn first_due(ends: &BTreeSet<(Instant, InboxId)>, now: Instant) -> Option<(Instant, InboxId)> {
    ends.first().copied().filter(|(at, _)| *at <= now)
}
