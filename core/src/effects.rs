//! What a step wants done, as plain data. The shell does it, in this order: replicate, reply, wake, announce.

use super::codec::Writer;
use super::context::TransitionContext;
use super::error::Error;
use super::lock::Holder;
use super::outcome::{Event, Granted};
use super::ticket::Ticket;

/// How a step reaches replicas and the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replication {
    /// Nothing changed.
    #[default]
    Nothing,
    /// The request as it came: replaying it needs no clock and gives the same state.
    Verbatim,
    /// The change that [`Effects::change`] spells out.
    Change,
}

/// A waiter that has its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    pub ticket: Ticket,
    pub answer: Answer,
}

/// The one answer that a waiter gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted(Granted),
    TimedOut,
    /// Its own client took the request back.
    Withdrawn,
    Refused(Error),
}

/// The effects of one step. Reused from step to step, so that a step allocates nothing for them.
#[derive(Debug, Default)]
pub struct Effects {
    pub replication: Replication,
    pub events: Vec<Event>,
    pub wakes: Vec<Wake>,
    /// For how many milliseconds each owner that is no holder any more had the lock.
    pub held_ms: Vec<u64>,
    /// Nobody hears of the change: it is not spelled out.
    encoding_skipped: bool,
    change: Writer,
    records: usize,
}

impl Effects {
    pub fn clear(&mut self) {
        self.encoding_skipped = false;
        self.replication = Replication::Nothing;
        self.events.clear();
        self.wakes.clear();
        self.held_ms.clear();
        self.change.clear();
        self.records = 0;
    }

    /// Nobody will hear of the change of this step: it need not be spelled out.
    pub fn skip_encoding(&mut self) {
        self.encoding_skipped = true;
    }

    /// The change in the encoding that `apply` reads, when somebody hears of it.
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

    /// The holder is now as it stands here: another hold, fewer holds, or a longer lease.
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

    /// Whether the holder gave up or its lease ended.
    pub(super) fn held(&mut self, holder: &Holder, cx: &TransitionContext) {
        self.held_ms.push(holder.since().ms_until(cx.now));
    }

    /// Of how many parts the change consists.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    fn record(&mut self, encode: impl FnOnce(&mut Writer)) {
        self.replication = Replication::Change;
        self.records = self.records.saturating_add(1);
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
