//! The lease clock: now, and the grace period that stretches leases.

use super::Instant;

/// By which leases are compared: the clock, read once for each command, and the last grace period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseClock {
    /// The current time.
    pub now: Instant,
    /// Start of the last grace period. Leases that were live then last at least until its end.
    pub grace_begin: Instant,
    /// End of the last grace period.
    pub grace_end: Instant,
}

impl LeaseClock {
    /// The clock of a server that has had no grace period.
    pub fn at(now: Instant) -> Self {
        Self {
            now,
            grace_begin: Instant::DISTANT_PAST,
            grace_end: Instant::DISTANT_PAST,
        }
    }

    /// When a lease ends that was granted until `granted_until`. One that was live when the grace period began lasts at
    /// least until its end. A lease granted after a grace period always ends after it, so the maximum is right for all.
    pub fn stretched(self, granted_until: Instant) -> Instant {
        if granted_until > self.grace_begin {
            granted_until.max(self.grace_end)
        } else {
            granted_until
        }
    }

    /// What remains of the grace period, in milliseconds, rounded up; `None` when none is running.
    pub fn grace_left_ms(self) -> Option<u64> {
        (self.grace_end > self.now).then(|| self.now.ms_until_rounded_up(self.grace_end))
    }
}
