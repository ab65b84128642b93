//! Where a lock stands in its wheel.

use crate::Instant;

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
    /// In no wheel.
    pub const NONE: Self = Self {
        bucket: Bucket(u32::MAX),
        slot: u32::MAX,
    };
    /// In no wheel, because the value has left its name.
    pub const UNTRACKED: Self = Self {
        bucket: Bucket(u32::MAX),
        slot: 0,
    };

    pub fn is_indexed(self) -> bool {
        self.bucket != Self::NONE.bucket
    }

    /// Whether a lock that stands here is looked at in time for `at`.
    pub fn covers(self, at: Instant) -> bool {
        self.bucket <= Bucket::of(at)
    }
}

impl Bucket {
    /// The bucket that an instant falls into. What lies too far ahead is looked at earlier, and put on.
    pub(super) fn of(at: Instant) -> Self {
        let bucket = at.as_micros().max(0).div_euclid(BUCKET_MICROS);
        Self(
            u32::try_from(bucket)
                .unwrap_or(u32::MAX)
                .min(u32::MAX.wrapping_sub(1)),
        )
    }

    /// Whether all of it has passed.
    pub(super) fn has_passed(self, now: Instant) -> bool {
        self < Self::of(now)
    }
}
