//! Points on a monotonic clock. The shell reads the clock; the core only compares.

/// A point in time, in microseconds on the monotonic clock of this process.
///
/// Signed, because a hold from another machine may have started before this clock did. Arithmetic saturates: a
/// lease beyond the range never ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(i64);

const MICROS_PER_MS: i64 = 1_000;

impl Instant {
    /// Before every instant that a clock can show.
    pub const DISTANT_PAST: Self = Self(i64::MIN);

    /// From microseconds since the zero of the clock.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the zero of the clock.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// This many milliseconds later.
    pub fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(micros(ms)))
    }

    /// This many milliseconds earlier.
    pub fn before_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(micros(ms)))
    }

    /// Whole milliseconds from here to `later`, rounded down; 0 when `later` is not later.
    pub fn ms_until(self, later: Self) -> u64 {
        self.micros_until(later).div_euclid(MICROS_PER_MS as u64)
    }

    /// Like [`Instant::ms_until`], rounded up: for replicas, so that a lease never expires early there.
    pub fn ms_until_rounded_up(self, later: Self) -> u64 {
        self.micros_until(later).div_ceil(MICROS_PER_MS as u64)
    }

    fn micros_until(self, later: Self) -> u64 {
        if later > self { later.0.abs_diff(self.0) } else { 0 }
    }
}

fn micros(ms: u64) -> i64 {
    i64::try_from(ms)
        .unwrap_or(i64::MAX)
        .saturating_mul(MICROS_PER_MS)
}

#[cfg(test)]
mod tests {
    use super::Instant;

    #[test]
    fn longest_time_saturates() {
        let late = Instant::from_micros(i64::MAX - 1).after_ms(u64::MAX);
        assert_eq!(late, Instant::from_micros(i64::MAX));
        assert!(Instant::DISTANT_PAST.before_ms(1) <= Instant::DISTANT_PAST);
        assert!(Instant::DISTANT_PAST.ms_until(late) > 0);
    }
}
