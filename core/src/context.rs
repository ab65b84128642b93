//! The circumstances of a transition: the time, the grace period, and whether locks may be granted at all.

use super::error::Error;
use super::fence::Fence;
use super::lock::{Holder, Lock};
use super::time::Instant;

/// When a transition happens: the clock, read once, and the state of the server.
#[derive(Clone, Copy, Debug)]
pub struct TransitionContext {
    /// The current time.
    pub now: Instant,
    /// Start of the last grace period. Leases that were live then last at least until its end.
    pub grace_begin: Instant,
    /// End of the last grace period.
    pub grace_end: Instant,
    /// The server may evict locks, and the settings do not allow that: no new holders.
    pub evictable: bool,
    /// The largest MINFENCE that is accepted; `None` = this is no server of a quorum. Only requests with a MINFENCE
    /// need it.
    pub max_min_fence: Option<Fence>,
}

impl TransitionContext {
    /// A server without a grace period that keeps its locks.
    pub fn at(now: Instant) -> Self {
        Self {
            now,
            grace_begin: Instant::DISTANT_PAST,
            grace_end: Instant::DISTANT_PAST,
            evictable: false,
            max_min_fence: None,
        }
    }

    /// When this lease ends. A lease that was live when the grace period began lasts at least until its end. A
    /// lease granted after a grace period always ends after it, so the maximum is right for all of them.
    pub fn lease_end(&self, holder: &Holder) -> Instant {
        if holder.lease_end > self.grace_begin {
            holder.lease_end.max(self.grace_end)
        } else {
            holder.lease_end
        }
    }

    /// What remains of a lease, in milliseconds, rounded down.
    pub fn lease_ms(&self, holder: &Holder) -> u64 {
        self.now.ms_until(self.lease_end(holder))
    }

    /// When the first lease of the lock ends.
    #[inline]
    pub fn first_lease_end(&self, lock: &Lock) -> Option<Instant> {
        lock.holders().iter().map(|holder| self.lease_end(holder)).min()
    }

    /// Whether the lease has not expired.
    pub fn is_live(&self, holder: &Holder) -> bool {
        self.lease_end(holder) > self.now
    }

    /// Whether a request may ask for this fence.
    pub(crate) fn check_min_fence(&self, min_fence: Option<Fence>) -> Result<(), Error> {
        match (min_fence, self.max_min_fence) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(Error::NoQuorum),
            (Some(min), Some(max)) if min > max => Err(Error::FenceTooLarge(max)),
            (Some(_), Some(_)) => Ok(()),
        }
    }

    /// What remains of the grace period, in milliseconds, rounded up.
    pub(crate) fn grace_left_ms(&self) -> Option<u64> {
        (self.grace_end > self.now).then(|| self.now.ms_until_rounded_up(self.grace_end))
    }

    /// The end of the lease after an extension. A lease is never shortened.
    pub(crate) fn extended_lease_end(&self, holder: &Holder, lease_ms: u64) -> Instant {
        self.lease_end(holder).max(self.now.after_ms(lease_ms))
    }
}
