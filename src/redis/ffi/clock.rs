//! The server's clocks.

use crate::redis::ffi::api::api;

/// The monotonic clock, in microseconds.
pub fn monotonic_micros() -> i64 {
    // SAFETY: takes nothing.
    let micros = unsafe { api!(RedisModule_MonotonicMicroseconds)() };
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// The wall clock, in milliseconds since 1970.
pub fn unix_ms() -> u64 {
    // SAFETY: takes nothing.
    let unix_ms = unsafe { api!(RedisModule_Milliseconds)() };
    u64::try_from(unix_ms).unwrap_or(0)
}
