//! The position of a lock in the expiry index.

use crate::time::Instant;

/// A bucket and a slot in it: eight bytes in every lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiryHandle {
    pub(super) bucket: Bucket,
    pub(super) slot: u32,
}

/// A quarter of a second, counted from the zero of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bucket(u32);

const BUCKET_MICROS: i64 = 250_000;

impl ExpiryHandle {
    /// Not in the index.
    pub const NONE: Self = Self {
        bucket: Bucket(u32::MAX),
        slot: u32::MAX,
    };

    /// Whether the lock is in the index.
    pub fn is_indexed(self) -> bool {
        self != Self::NONE
    }

    /// Whether the lock is due at `at` or before.
    pub fn covers(self, at: Instant) -> bool {
        self.bucket <= Bucket::of(at)
    }
}

impl Bucket {
    /// The bucket of an instant. An instant beyond all buckets gets the last one: the lock is due earlier, and is
    /// inserted again then.
    pub(super) fn of(at: Instant) -> Self {
        let bucket = at.as_micros().max(0).div_euclid(BUCKET_MICROS);
        Self(
            u32::try_from(bucket)
                .unwrap_or(u32::MAX)
                .min(u32::MAX.wrapping_sub(1)),
        )
    }

    /// When all of it has passed.
    pub(super) fn end(self) -> Instant {
        let next = i64::from(self.0).saturating_add(1);
        Instant::from_micros(next.saturating_mul(BUCKET_MICROS))
    }

    /// Whether all of it has passed.
    pub(super) fn has_passed(self, now: Instant) -> bool {
        self < Self::of(now)
    }
}
