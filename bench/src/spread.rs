//! Several measurements of one thing.

use std::fmt;

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
    use super::Spread;

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(format!("{:.1}", Spread::of([3.0, 1.0, 9.0])), "3.0 (1.0 to 9.0)");
        assert_eq!(
            format!("{:.1}", Spread::of([4.0, 1.0, 2.0, 9.0])),
            "3.0 (1.0 to 9.0)"
        );
        assert_eq!(format!("{:.0}", Spread::of([5.0])), "5");
    }
}
