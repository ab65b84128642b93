//! How inboxes end: when nobody reads them any more, and when this server is a replica from now on.

use std::collections::BTreeSet;

use super::named::Reader;
use super::outcome::InboxStep;
use super::{Ended, Inbox, Inboxes};
use crate::names::{Call, InboxId};
use crate::time::Instant;

/// How long a pass takes at least: more than what the module does in one. A slower one counts once, too.
const PASS_MS: u64 = 10;

impl Inboxes {
    /// Takes note of whether clients are paused. Meanwhile no inbox ends for want of a reader.
    pub fn look_at_pauses(&mut self, is_paused: bool, now: Instant) {
        self.pauses.look(is_paused, now);
    }

    /// Does one of the things that are due; `None` if nothing is.
    pub(crate) fn process(&mut self, now: Instant) -> Option<InboxStep> {
        if let Some((_, id)) = first_due(&self.call_ends, now) {
            return self.wake_reader(id).map(InboxStep::Reply);
        }
        if let Some((_, id)) = first_due(&self.absence_ends, self.pauses.clock(now)) {
            self.end_absence(id, now);
            return Some(InboxStep::Done);
        }
        self.clear_ended()
    }

    /// Has a waiter of an inbox that has ended leave its queue, or gives up a grant that no reply carried.
    fn clear_ended(&mut self) -> Option<InboxStep> {
        let mut entry = self.ended.first_entry()?;
        let ended = entry.get_mut();
        // The last first: each queue becomes due once, when the first waiter leaves.
        if let Some((ticket, lock)) = ended.waiters.pop_last() {
            self.waiters = self.waiters.saturating_sub(1);
            return Some(InboxStep::Leave(lock, ticket));
        }
        if let Some(answered) = ended.answers.pop() {
            self.answers = self.answers.saturating_sub(1);
            if !ended.answers.is_carried(&answered) {
                self.in_flight.give_up(answered);
            }
        } else {
            entry.remove();
        }
        Some(InboxStep::Done)
    }

    /// Ends all inboxes: this server does not grant any more. Returns the calls that are to be replied to. This is one
    /// step of 0.6 us for each inbox, 5.5 ms for 10 000: their waiters and answers are only moved. Clearing them is done
    /// in slices.
    pub(crate) fn end_all(&mut self) -> Vec<Call> {
        let ids: Vec<InboxId> = self.by_name.values().copied().collect();
        let calls = ids.into_iter().filter_map(|id| {
            let call = self.wake_reader(id);
            self.end(id);
            call
        });
        calls.collect()
    }

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

    /// Nobody has read this inbox for its whole time to live: it ends after some more passes of the server's loop.
    fn end_absence(&mut self, id: InboxId, now: Instant) {
        let until = self.pauses.clock(now).after_ms(PASS_MS);
        let reader = self.named(id).map(|named| named.reader);
        if let Some(Reader::Absent { passes_left, .. }) = reader
            && let Some(passes_left) = passes_left.checked_sub(1)
        {
            self.set_reader(id, Reader::Absent { until, passes_left });
        } else {
            self.end(id);
        }
    }

    /// Its name is free from now on. What it leaves is cleared a step at a time.
    pub(super) fn end(&mut self, id: InboxId) {
        if let Some(Inbox::Named(named)) = self.remove(id) {
            self.forget_reader(id, named.reader);
            self.by_name.remove(&named.name);
            self.ended_total = self.ended_total.wrapping_add(1);
            let ended = Ended {
                waiters: named.waiters,
                answers: named.answers,
            };
            // An empty one is over: clients may make and end inboxes faster than slices clear them.
            if !ended.waiters.is_empty() || !ended.answers.is_empty() {
                self.ended.insert(id, ended);
            }
        }
    }
}

fn first_due(ends: &BTreeSet<(Instant, InboxId)>, now: Instant) -> Option<(Instant, InboxId)> {
    ends.first().copied().filter(|(at, _)| *at <= now)
}
