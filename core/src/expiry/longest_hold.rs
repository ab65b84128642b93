//! Age of the oldest hold, sampled by the sweeper; up to one lease late.

use crate::lock::{Holder, Lock};
use crate::time::{Instant, LeaseClock};

/// The sweeper visits a lock at most this long after its first lease end.
const VISIT_DELAY_MS: u64 = 2_000;

/// The oldest holder among those that the sweeper has visited. It is up to one lease late.
#[derive(Clone, Default)]
pub struct LongestHold {
    since: Instant,
    next_visit: Instant,
}

impl LongestHold {
    /// A lock was visited: its first lease was renewed, or has expired.
    pub fn sample(&mut self, lock: &Lock, clock: LeaseClock) {
        let since = lock.holders().iter().map(Holder::since).min();
        if let (Some(since), Some(first_end)) = (since, lock.first_lease_end(clock))
            && (since <= self.since || self.ms(clock.now) == 0)
        {
            self.since = since;
            self.next_visit = first_end.after_ms(VISIT_DELAY_MS);
        }
    }

    /// For how long it has been running. 0 if there is none.
    pub fn ms(&self, now: Instant) -> u64 {
        if now > self.next_visit {
            0
        } else {
            self.since.ms_until(now)
        }
    }
}
