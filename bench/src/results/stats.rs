//! Statistics of repeated measurements.

use std::time::Duration;

/// The median, since noise only ever adds time, with the range around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Stats {
    /// NaN without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        Self {
            median: f64::midpoint(at(last / 2), at(last.div_ceil(2))),
            min: at(0),
            max: at(last),
        }
    }
}

/// Of one value per round.
pub fn stats_of<T>(rounds: &[T], value: impl Fn(&T) -> f64) -> Stats {
    Stats::of(rounds.iter().map(value))
}

/// Nearest rank; 100 is the maximum.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * percent / 100.0).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Jain's fairness index: 1 if all counts are equal, 1/n if one of n has everything.
pub fn fairness(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|count| count * count).sum();
    sum * sum / (counts.len() as f64 * squares)
}

pub fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Three significant digits, or all digits before the decimal point.
pub fn number(value: f64) -> String {
    match value.abs() {
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
        assert_eq!(Stats::of([3.0, 1.0, 9.0]), Stats { median, min, max });
        assert_eq!(Stats::of([4.0, 1.0, 2.0, 9.0]), Stats { median, min, max });
        assert_eq!(Stats::of([5.0]).median, 5.0);
        assert!(Stats::of([]).median.is_nan());
    }

    #[test]
    fn percentile_of_sorted_values_is_nearest_rank() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(
            [0.0, 50.0, 99.0, 100.0].map(|percent| percentile(&values, percent)),
            [0.0, 50.0, 99.0, 100.0]
        );
        assert_eq!(percentile(&[7.0], 99.0), 7.0);
        assert!(percentile(&[], 50.0).is_nan());
    }

    #[test]
    fn fairness_of_uneven_counts_is_below_one() {
        let is = |counts: &[f64], expected: f64| (fairness(counts) - expected).abs() < 1e-9;
        assert!(is(&[5.0; 4], 1.0));
        assert!(is(&[5.0, 0.0, 0.0, 0.0], 0.25));
        assert!(is(&[5.0, 1.0], 36.0 / 52.0));
    }
}
