//! The side effects of a transition, as plain data. The shell performs them: replicate, reply, wake, publish.

use super::codec::Writer;
use super::context::TransitionContext;
use super::error::Error;
use super::lock::Holder;
use super::outcome::{Event, Granted};
use super::ticket::Ticket;

/// How a transition reaches replicas and the append-only file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replication {
    /// Nothing changed.
    #[default]
    Nothing,
    /// The request itself: executing it again needs no clock and gives the same state.
    Verbatim,
    /// The change that [`Effects::change`] encodes.
    Change,
}

/// A waiter whose request is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The waiter.
    pub ticket: Ticket,
    /// The reply to its client.
    pub answer: Answer,
}

/// The one reply that a waiter gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It holds the lock.
    Granted(Granted),
    /// Its timeout has passed.
    TimedOut,
    /// The owner released the request by its id.
    Withdrawn,
    /// It was rejected.
    Refused(Error),
}

/// The effects of one transition. Reuse them: then a transition allocates nothing for them.
#[derive(Debug, Default)]
pub struct Effects {
    /// What to replicate.
    pub replication: Replication,
    /// The keyspace events to publish, in order.
    pub events: Vec<Event>,
    /// The waiters to wake, in order.
    pub wakes: Vec<Wake>,
    /// How many milliseconds each former holder had the lock.
    pub held_ms: Vec<u64>,
    /// The fence of a holder was raised.
    pub is_fence_raised: bool,
    /// A search for deadlocks was abandoned: the request waits without one.
    pub is_search_abandoned: bool,
    /// Nothing consumes the change: it is not encoded.
    encoding_skipped: bool,
    change: Writer,
    records: usize,
}

impl Effects {
    /// Prepares for the next transition.
    #[inline]
    pub fn clear(&mut self) {
        self.encoding_skipped = false;
        self.is_fence_raised = false;
        self.is_search_abandoned = false;
        self.replication = Replication::Nothing;
        self.events.clear();
        self.wakes.clear();
        self.held_ms.clear();
        self.change.clear();
        self.records = 0;
    }

    /// Nothing will consume the change of this transition: do not encode it.
    pub fn skip_encoding(&mut self) {
        self.encoding_skipped = true;
    }

    /// Whether an owner became a holder, a holder left, or its fence was raised. Not by a re-entry, a partial release or
    /// a longer lease.
    #[inline]
    pub fn changes_holders(&self) -> bool {
        self.is_fence_raised || self.events.iter().any(|event| *event != Event::Extended)
    }

    /// The change for [`crate::Transition::apply`], unless its encoding was skipped.
    pub fn change(&self) -> &[u8] {
        self.change.as_bytes()
    }

    pub(super) fn acquired(&mut self, holder: &Holder, cx: &TransitionContext) {
        self.events.push(Event::Acquired);
        self.updated(holder, cx);
    }

    pub(super) fn extended(&mut self) {
        self.events.push(Event::Extended);
    }

    /// The new state of a holder: another hold, fewer holds, or a longer lease.
    pub(super) fn updated(&mut self, holder: &Holder, cx: &TransitionContext) {
        self.record(|change| change.holder(holder, cx));
    }

    pub(super) fn released(&mut self, owner: &[u8]) {
        self.events.push(Event::Released);
        self.record(|change| change.released(owner));
    }

    pub(super) fn expired(&mut self, owner: &[u8]) {
        self.events.push(Event::Expired);
        self.record(|change| change.expired(owner));
    }

    /// The end of a hold, by a release or an expired lease.
    pub(super) fn held(&mut self, holder: &Holder, cx: &TransitionContext) {
        self.held_ms.push(holder.since().ms_until(cx.now));
    }

    /// The number of records in the change.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    fn record(&mut self, encode: impl FnOnce(&mut Writer)) {
        self.replication = Replication::Change;
        self.records = self.records.wrapping_add(1);
        if !self.encoding_skipped {
            encode(&mut self.change);
        }
    }

    pub(super) fn granted(&mut self, ticket: Ticket, granted: Granted) {
        self.wake(ticket, Answer::Granted(granted));
    }

    pub(super) fn refused(&mut self, ticket: Ticket, error: Error) {
        self.wake(ticket, Answer::Refused(error));
    }

    pub(super) fn timed_out(&mut self, ticket: Ticket) {
        self.wake(ticket, Answer::TimedOut);
    }

    pub(super) fn withdrawn(&mut self, ticket: Ticket) {
        self.wake(ticket, Answer::Withdrawn);
    }

    fn wake(&mut self, ticket: Ticket, answer: Answer) {
        self.wakes.push(Wake { ticket, answer });
    }
}
