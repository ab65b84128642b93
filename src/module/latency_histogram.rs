//! Latencies: percentiles without a list of all that was measured.

use hdrhistogram::Histogram;

/// Two digits are enough to see what is going on, and cost 24 kB.
const DIGITS: u8 = 2;
/// A week. What takes longer is shown as that.
const MAX_MS: u64 = 7 * 24 * 3_600_000;

/// Durations in milliseconds. Takes memory with the first.
pub struct LatencyHistogram(Option<Histogram<u64>>);

impl LatencyHistogram {
    pub const fn new() -> Self {
        Self(None)
    }

    pub fn record(&mut self, ms: u64) {
        if self.0.is_none() {
            self.0 = Histogram::new_with_max(MAX_MS, DIGITS).ok();
        }
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(ms);
        }
    }

    /// In milliseconds; 0 when nothing was recorded.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.0
            .as_ref()
            .map_or(0, |histogram| histogram.value_at_percentile(percent))
    }
}
