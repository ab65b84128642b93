//! Statistics of repeated measurements.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::error::Result;

/// The median of rounds, with their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Stats {
    /// `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (last, at) = (values.len().checked_sub(1)?, |index: usize| {
            values.get(index).copied()
        });
        Some(Self {
            median: f64::midpoint(at(last / 2)?, at(last.div_ceil(2))?),
            min: at(0)?,
            max: at(last)?,
        })
    }
}

/// Durations, to 0.1 %.
pub struct Times(Histogram<u64>);

impl Times {
    pub fn new() -> Result<Self> {
        Ok(Self(Histogram::new(3)?))
    }

    pub fn record(&mut self, time: Duration) -> Result<()> {
        Ok(self.0.record(u64::try_from(time.as_nanos())?)?)
    }

    /// In microseconds; 100 is the maximum.
    pub fn us(&self, percentile: f64) -> f64 {
        self.0.value_at_percentile(percentile) as f64 / 1e3
    }

    pub fn ms(&self, percentile: f64) -> f64 {
        self.us(percentile) / 1e3
    }
}

/// Jain's fairness index: 1 if all counts are equal, 1/n if one of n has everything.
pub fn fairness(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|count| count * count).sum();
    sum * sum / (counts.len() as f64 * squares)
}

pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Three significant digits, or all digits before the decimal point.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_of_values_are_median_and_range() {
        let [median, min, max] = [3.0, 1.0, 9.0];
        let stats = Some(Stats { median, min, max });
        assert_eq!(Stats::of([3.0, 1.0, 9.0]), stats);
        assert_eq!(Stats::of([4.0, 1.0, 2.0, 9.0]), stats);
        assert_eq!(Stats::of([]), None);
    }

    #[test]
    fn fairness_of_uneven_counts_is_below_one() {
        let is = |counts: &[f64], expected: f64| (fairness(counts) - expected).abs() < 1e-9;
        assert!(is(&[5.0; 4], 1.0) && is(&[5.0, 0.0, 0.0, 0.0], 0.25));
    }
}
