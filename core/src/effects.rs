//! The side effects of a transition, as plain data. The shell carries them out, in one place and order.

use std::rc::Rc;

use crate::lock::{Holder, Writer};
use crate::names::{Call, RequestKey, Ticket};
use crate::time::LeaseClock;
use crate::waiting::Waiter;
use crate::wire::{Error, Event, Granted, Outcome};

/// A waiter whose request is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// Its position in the queue.
    pub ticket: Ticket,
    /// The waiter.
    pub waiter: Waiter,
    /// What its inbox gets.
    pub answer: Answer,
}

/// The one answer that a waiter gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It holds the lock.
    Granted(Granted),
    /// What remains of the lease that it extended, in milliseconds. Only to a client that is blocked.
    Extended(u64),
    /// Its timeout has passed.
    TimedOut,
    /// The owner released the request by its id.
    Withdrawn,
    /// It was rejected.
    Rejected(Error),
    /// It cannot be granted by this server any more: an error of the server's own kind, MOVED for instance.
    Elsewhere(Rc<str>),
}

/// The most waiters that one transition answers, besides the other requests of the last owner. Where there are more, the
/// timer goes on, and other clients are served in between. Only searches set another number, so that few waiters are
/// enough.
#[derive(Clone, Copy, Debug)]
pub struct MaxAnswers(pub usize);

impl Default for MaxAnswers {
    /// About 0.2 ms of work.
    fn default() -> Self {
        Self(128)
    }
}

/// The effects of one transition. Reuse them: then a transition allocates nothing for them.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// What became of the request.
    pub outcome: Outcome,
    /// The lock has changed: [`Effects::change`] is to be replicated.
    pub is_changed: bool,
    /// The request waits now: its client is to be blocked. `None` if its answer goes to an inbox with a name.
    pub parked: Option<Call>,
    /// The position of the request in its queue, if it waits now: see [`crate::ServerState::undo_queued`].
    pub(super) queued: Option<Ticket>,
    /// The request was one that is granted already: the reply carries this grant.
    pub(super) repeated: Option<RequestKey>,
    /// What the request is answered when replicas have it: until then its client is blocked, or reads an inbox.
    pub(super) own_answer: Option<Wake>,
    /// The calls that are to be replied to: see [`crate::ServerState::deliver`].
    pub calls: Vec<Call>,
    /// The queue of the lock has changed, and when it is due next.
    pub may_be_due: bool,
    /// The keyspace events to publish, in order.
    pub events: Vec<Event>,
    /// The waiters to wake, in order.
    pub wakes: Vec<Wake>,
    /// How many they may be.
    pub max_answers: MaxAnswers,
    /// How many milliseconds each former holder had the lock.
    pub held_ms: Vec<u64>,
    /// The fence of a holder was raised.
    pub is_fence_raised: bool,
    /// The request has another limit than the holders: see [`crate::Limit::contradicts`].
    pub is_limit_mismatch: bool,
    /// A search for deadlocks was abandoned: the request waits without one.
    pub is_search_abandoned: bool,
    /// A state that is impossible, as far as we know.
    pub internal_error: Option<&'static str>,
    /// By which leases were compared.
    pub clock: LeaseClock,
    /// Nothing consumes the change: it is not encoded.
    skips_encoding: bool,
    change: Writer,
}

/// The effects of each kind for which memory is kept.
const SMALL: usize = 64;

impl Effects {
    /// Prepares for a transition: see [`crate::Inputs::must_encode`].
    #[inline]
    pub(super) fn begin(&mut self, clock: LeaseClock, must_encode: bool) {
        // All fields are named, so that none can be forgotten.
        let Self {
            outcome,
            is_changed,
            parked,
            queued,
            repeated,
            own_answer,
            calls,
            may_be_due,
            events,
            wakes,
            max_answers: _,
            held_ms,
            is_fence_raised,
            is_limit_mismatch,
            is_search_abandoned,
            internal_error,
            clock: own_clock,
            skips_encoding,
            change,
        } = self;
        (*outcome, *parked, *queued, *repeated) = (Outcome::None, None, None, None);
        (*is_changed, *may_be_due, *is_fence_raised) = (false, false, false);
        (*is_limit_mismatch, *is_search_abandoned) = (false, false);
        (*internal_error, *own_clock, *skips_encoding) = (None, clock, !must_encode);
        *own_answer = None;
        events.clear();
        wakes.clear();
        calls.clear();
        held_ms.clear();
        change.clear();
    }

    /// Whether to reuse them. Otherwise they hold memory that nearly no other transition needs.
    #[inline]
    pub fn are_small(&self) -> bool {
        self.wakes.capacity() <= SMALL
            && self.calls.capacity() <= SMALL
            && self.events.capacity() <= SMALL
            && self.held_ms.capacity() <= SMALL
            && self.change.is_small()
    }

    /// Whether an owner became a holder, a holder left, or its fence was raised. Not by a re-entry, a partial release or
    /// a longer lease.
    #[inline]
    pub fn changes_holders(&self) -> bool {
        self.is_fence_raised || self.events.iter().any(|event| *event != Event::Extended)
    }

    /// The change for [`crate::ServerState::apply`]; `None` if it is not encoded.
    pub fn change(&self) -> Option<&[u8]> {
        (!self.skips_encoding).then(|| self.change.as_bytes())
    }

    pub(super) fn acquired(&mut self, holder: &Holder, clock: LeaseClock) {
        self.events.push(Event::Acquired);
        self.updated(holder, clock);
    }

    /// The new state of a holder: another hold, fewer holds, or a longer lease.
    pub(super) fn updated(&mut self, holder: &Holder, clock: LeaseClock) {
        self.record(|change| change.holder(holder, clock));
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
    pub(super) fn held(&mut self, holder: &Holder, clock: LeaseClock) {
        self.held_ms.push(holder.since().ms_until(clock.now));
    }

    /// Takes note of a state that is impossible. Tests fail.
    #[cold]
    pub(super) fn internal_error(&mut self, what: &'static str) {
        debug_assert!(false, "{what}");
        self.internal_error = Some(what);
    }

    fn record(&mut self, encode: impl FnOnce(&mut Writer)) {
        self.is_changed = true;
        if !self.skips_encoding {
            encode(&mut self.change);
        }
    }

    /// No more waiters may be answered.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.wakes.len() >= self.max_answers.0
    }

    pub(super) fn wake(&mut self, ticket: Ticket, waiter: Waiter, answer: Answer) {
        self.wakes.push(Wake {
            ticket,
            waiter,
            answer,
        });
    }
}
