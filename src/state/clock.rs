//! The server's clocks, as the core counts time.

use dlock_core::{Instant, WallClock};

use crate::redis::clock;

/// The monotonic clock, by which leases and timeouts go.
pub fn now() -> Instant {
    Instant::from_micros(clock::monotonic_micros())
}

/// The wall clock. Only fencing tokens depend on it.
pub fn wall_clock() -> WallClock {
    WallClock::from_unix_ms(clock::unix_ms())
}

/// The work that one job does at a time. Clients wait no longer than that.
pub struct Slice(Instant);

impl Slice {
    /// A slice of this many milliseconds from now.
    pub fn of_ms(ms: u64) -> Self {
        Self(now().after_ms(ms))
    }

    /// A part of it, no longer than this many milliseconds from now.
    pub fn part(&self, ms: u64) -> Self {
        Self(now().after_ms(ms).min(self.0))
    }

    pub fn is_over(&self) -> bool {
        now() >= self.0
    }
}
