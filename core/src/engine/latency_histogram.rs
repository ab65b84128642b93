//! How long things took, counted in buckets.

use std::fmt::Write;

/// The upper bounds of all buckets but the last: from a millisecond to a day.
const BOUNDS_MS: [u64; 16] = [
    1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 3_600_000, 21_600_000,
    86_400_000,
];

/// Durations in milliseconds.
#[derive(Clone, Default)]
pub struct LatencyHistogram {
    sum_ms: u64,
    counts: [u64; BOUNDS_MS.len() + 1],
}

impl LatencyHistogram {
    pub(super) fn record(&mut self, ms: u64) {
        self.sum_ms = self.sum_ms.wrapping_add(ms);
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < ms);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.wrapping_add(1);
        }
    }

    /// The sum of all durations.
    pub fn sum_ms(&self) -> u64 {
        self.sum_ms
    }

    /// The number of durations up to each bound in milliseconds: `1=0,5=2,...,inf=7`.
    pub fn buckets(&self) -> String {
        let mut total: u64 = 0;
        let mut text = String::new();
        for (bucket, count) in self.counts.iter().enumerate() {
            total = total.wrapping_add(*count);
            _ = match BOUNDS_MS.get(bucket) {
                Some(bound) => write!(text, "{bound}={total},"),
                None => write!(text, "inf={total}"),
            };
        }
        text
    }
}
