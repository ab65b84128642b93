//! Several measurements of one thing.

use std::fmt;
use std::time::Duration;

/// The median, because a busy machine only ever adds, and how far the rest lies around it.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    /// At least one value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let [low, .., high] = values[..] else {
            let only = values.first().copied().unwrap_or(f64::NAN);
            return Self {
                median: only,
                low: only,
                high: only,
            };
        };
        let (upper, lower) = (values.len() / 2, (values.len() - 1) / 2);
        Self {
            median: f64::midpoint(values[lower], values[upper]),
            low,
            high,
        }
    }
}

/// One value of each round.
pub fn spread<T>(rounds: &[T], of: impl Fn(&T) -> f64) -> Spread {
    Spread::of(rounds.iter().map(of))
}

/// The value below which so many percent of the sorted ones lie; the last one for 100.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * percent / 100.0).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Jain's index: 1 when all have as many, 1/n when one of n has all.
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

/// `1.31 (1.27 to 1.35)`, or `1.31` when there is nothing around it. The precision counts for all three.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        if self.low == self.high {
            return write!(f, "{:.digits$}", self.median);
        }
        write!(
            f,
            "{:.digits$} ({:.digits$} to {:.digits$})",
            self.median, self.low, self.high
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(format!("{:.1}", Spread::of([3.0, 1.0, 9.0])), "3.0 (1.0 to 9.0)");
        assert_eq!(
            format!("{:.1}", Spread::of([4.0, 1.0, 2.0, 9.0])),
            "3.0 (1.0 to 9.0)"
        );
        assert_eq!(format!("{:.0}", Spread::of([5.0])), "5");
    }

    #[test]
    fn percentiles_stand_where_they_belong() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(
            [0.0, 50.0, 99.0, 100.0].map(|percent| percentile(&values, percent)),
            [0.0, 50.0, 99.0, 100.0]
        );
        assert_eq!(percentile(&[7.0], 99.0), 7.0);
        assert!(percentile(&[], 50.0).is_nan());
    }

    #[test]
    fn fairness_falls_when_one_is_served_more_often() {
        let is = |counts: &[f64], expected: f64| (fairness(counts) - expected).abs() < 1e-9;
        assert!(is(&[5.0; 4], 1.0));
        assert!(is(&[5.0, 0.0, 0.0, 0.0], 0.25));
        assert!(is(&[5.0, 1.0], 36.0 / 52.0));
    }
}
