//! What `INFO dlock` counts.

use super::latency_histogram::LatencyHistogram;
use crate::effects::{Answer, Effects};
use crate::wire::{Error, Event, Outcome};

/// Counters since the start of the server, as a primary.
#[derive(Clone, Default)]
pub struct Counters {
    /// Owners that became holders.
    pub acquired: u64,
    /// Holds given to owners that were holders already.
    pub reentered: u64,
    /// ACQUIREs that were not granted.
    pub not_granted: u64,
    /// Holders that released their last hold.
    pub released: u64,
    /// RELEASEs by owners that had lost the lock before, or never had it.
    pub late_releases: u64,
    /// EXTENDs that were granted.
    pub extended: u64,
    /// GUARDs whose check passed.
    pub guarded: u64,
    /// GUARDs whose check failed: nothing was run.
    pub guards_refused: u64,
    /// Holders whose fence was raised.
    pub fences_raised: u64,
    /// Holders that were removed because their lease had expired.
    pub expired: u64,
    /// Those of them whose locks had waiters.
    pub expired_contended: u64,
    /// Waiters that were granted.
    pub grants_from_queue: u64,
    /// Waiters that timed out.
    pub wait_timeouts: u64,
    /// How long each waiter that was granted had waited.
    pub waited_ms: LatencyHistogram,
    /// How long each former holder had the lock.
    pub held_ms: LatencyHistogram,
    /// How long each answer that was told was held back until replicas had it.
    pub held_back_ms: LatencyHistogram,
    /// Answers that were held back for too long.
    pub sync_timeouts: u64,
    /// Grants to clients that were gone, or that replicas did not have in time.
    pub grants_rolled_back: u64,
    /// ACQUIREs with another limit than the holders of the lock.
    pub limit_mismatches: u64,
    /// Requests that wait, though their search for deadlocks was abandoned.
    pub deadlock_searches_abandoned: u64,
    /// States that are impossible.
    pub internal_errors: u64,
    /// Rejected requests by their first word.
    pub errors: Errors,
}

/// Rejected requests, by the first words of their errors.
#[derive(Clone, Default)]
#[allow(missing_docs, reason = "each field is named after its word")]
pub struct Errors {
    pub err: u64,
    pub wrongtype: u64,
    pub notheld: u64,
    pub notowner: u64,
    pub stale: u64,
    pub grace: u64,
    pub evictable: u64,
    pub deadlock: u64,
    pub queuefull: u64,
    pub noinbox: u64,
    pub busyinbox: u64,
}

impl Counters {
    /// Counts what a transition did to a lock, with waiters or without. Errors are counted when they are sent.
    pub(super) fn record(&mut self, effects: &Effects, is_contended: bool) {
        match effects.outcome {
            Outcome::Reentered => increment(&mut self.reentered),
            Outcome::NotGranted => increment(&mut self.not_granted),
            Outcome::LateRelease => increment(&mut self.late_releases),
            Outcome::RolledBack => increment(&mut self.grants_rolled_back),
            Outcome::None | Outcome::New | Outcome::Repeated | Outcome::Queued => {}
        }
        for event in &effects.events {
            increment(match event {
                Event::Acquired => &mut self.acquired,
                Event::Released => &mut self.released,
                Event::Extended => &mut self.extended,
                Event::Expired => &mut self.expired,
            });
            if is_contended && *event == Event::Expired {
                increment(&mut self.expired_contended);
            }
        }
        for ms in &effects.held_ms {
            self.held_ms.record(*ms);
        }
        if effects.is_fence_raised {
            increment(&mut self.fences_raised);
        }
        if effects.is_limit_mismatch {
            increment(&mut self.limit_mismatches);
        }
        if effects.is_search_abandoned {
            increment(&mut self.deadlock_searches_abandoned);
        }
        for wake in &effects.wakes {
            self.answered(&wake.answer);
        }
    }

    /// A waiter has its answer.
    fn answered(&mut self, answer: &Answer) {
        match answer {
            Answer::Granted(granted) => {
                increment(&mut self.grants_from_queue);
                self.waited_ms.record(granted.waited_ms);
            }
            Answer::TimedOut => increment(&mut self.wait_timeouts),
            Answer::Rejected(error) => self.rejected(error),
            Answer::Extended(_) | Answer::Withdrawn | Answer::Elsewhere(_) => {}
        }
    }

    /// A request was rejected.
    pub fn rejected(&mut self, error: &Error) {
        increment(match error {
            // No error of anybody: the client has sent the request again. The others are of the server's own kind.
            Error::Replaced | Error::ForeignInbox => return,
            Error::FewReplicas(_) | Error::CannotHoldBack => return,
            Error::NotHeld => &mut self.errors.notheld,
            Error::NotOwner => &mut self.errors.notowner,
            Error::Stale | Error::StaleRequestId => &mut self.errors.stale,
            Error::Grace(_) => &mut self.errors.grace,
            Error::Evictable => &mut self.errors.evictable,
            Error::QueueFull(_) => &mut self.errors.queuefull,
            Error::Deadlock(_) => &mut self.errors.deadlock,
            Error::NoInbox => &mut self.errors.noinbox,
            Error::BusyInbox => &mut self.errors.busyinbox,
            _ => &mut self.errors.err,
        });
    }
}

/// Adds one.
pub fn increment(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}
