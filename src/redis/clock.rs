//! The server's clocks.

use dlock_core::{Instant, WallClock};

use crate::redis::api::api;

/// The monotonic clock, by which leases and timeouts go.
pub fn now() -> Instant {
    // SAFETY: takes nothing.
    let micros = unsafe { (api().monotonic_microseconds)() };
    Instant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// The wall clock. Only fencing tokens depend on it.
pub fn wall_clock() -> WallClock {
    WallClock::from_unix_ms(unix_ms())
}

/// The wall clock, in milliseconds since 1970.
pub fn unix_ms() -> u64 {
    // SAFETY: takes nothing.
    let unix_ms = unsafe { (api().milliseconds)() };
    u64::try_from(unix_ms).unwrap_or(0)
}
