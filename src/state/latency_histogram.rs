//! Latencies: percentiles and buckets without a list of all that was measured.

use std::fmt::Write;

use hdrhistogram::Histogram;

/// Two digits are enough to see what is going on, and cost 24 kB.
const DIGITS: u8 = 2;
/// A week. What takes longer is shown as that.
const MAX_MS: u64 = 7 * 24 * 3_600_000;
/// The buckets that INFO shows: from a millisecond to a day.
const BUCKETS_MS: [u64; 16] = [
    1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 3_600_000, 21_600_000,
    86_400_000,
];

/// Durations in milliseconds. Takes memory with the first.
pub struct LatencyHistogram {
    sum_ms: u64,
    histogram: Option<Histogram<u64>>,
}

impl LatencyHistogram {
    pub const fn new() -> Self {
        Self {
            sum_ms: 0,
            histogram: None,
        }
    }

    pub fn record(&mut self, ms: u64) {
        self.sum_ms = self.sum_ms.wrapping_add(ms);
        if self.histogram.is_none() {
            self.histogram = Histogram::new_with_max(MAX_MS, DIGITS).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(ms);
        }
    }

    pub fn sum_ms(&self) -> u64 {
        self.sum_ms
    }

    /// In milliseconds; 0 when nothing was recorded.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.histogram
            .as_ref()
            .map_or(0, |histogram| histogram.value_at_percentile(percent))
    }

    /// The number of durations up to each bound in milliseconds: `1=0,5=2,...,inf=7`.
    pub fn buckets(&self) -> String {
        let recorded = self.histogram.iter().flat_map(|histogram| {
            histogram.iter_recorded().map(|value| {
                let ms = histogram.lowest_equivalent(value.value_iterated_to());
                (ms, value.count_since_last_iteration())
            })
        });
        let mut recorded = recorded.peekable();
        let mut total: u64 = 0;
        let mut text = String::new();
        for bound in BUCKETS_MS {
            while let Some((_, count)) = recorded.next_if(|(ms, _)| *ms <= bound) {
                total = total.wrapping_add(count);
            }
            _ = write!(text, "{bound}={total},");
        }
        let total = recorded.fold(total, |total, (_, count)| total.wrapping_add(count));
        _ = write!(text, "inf={total}");
        text
    }
}
