//! Values over values, a line per implementation, both axes logarithmic.

use super::svg::{MARGIN, WIDTH, circle, color, line, text};
use crate::results::DLOCK;
use crate::results::stats::{Stats, number};

pub const HEIGHT: f64 = 880.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = WIDTH - 540.0;
/// Below the description of the y axis.
const TOP: f64 = 36.0;
const BOTTOM: f64 = HEIGHT - 84.0;
/// Distance between two names in the legend.
const LEGEND_STEP: f64 = 38.0;

pub struct Series {
    pub name: String,
    /// Sorted by `x`. Greater than zero, because of the logarithmic axes.
    pub points: Vec<(f64, Stats)>,
}

/// A logarithmic axis, from its first to its last value and pixel.
struct Axis {
    values: (f64, f64),
    pixels: (f64, f64),
}

impl Axis {
    /// Spans the values, with a factor of `room` at both ends.
    fn of(values: impl Iterator<Item = f64>, room: f64, pixels: (f64, f64)) -> Self {
        let range = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        let values = (range.0 / room, range.1 * room);
        Self { values, pixels }
    }

    fn at(&self, value: f64) -> f64 {
        let part = (value / self.values.0).ln() / (self.values.1 / self.values.0).ln();
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }

    /// 1, 2 and 5 times the powers of ten: more ticks are too dense on a logarithmic axis.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (low, high) = self.values;
        let powers = low.log10().floor() as i32..=high.log10().floor() as i32;
        let ticks = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
        ticks.filter(move |tick| (low..=high).contains(tick))
    }
}

pub fn draw(x: &str, y: &str, unit: &str, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|series| &series.points);
    let xs = Axis::of(points().map(|(x, _)| *x), 1.08, (LEFT, RIGHT));
    let ys = Axis::of(points().flat_map(|(_, y)| [y.min, y.max]), 1.4, (BOTTOM, TOP));
    let mut svg = line(LEFT, BOTTOM, RIGHT, BOTTOM, "stroke=\"#787878\"");
    for tick in ys.ticks() {
        svg += &line(LEFT, ys.at(tick), RIGHT, ys.at(tick), "class=\"thin\"");
        svg += &text(LEFT - 12.0, ys.at(tick), "right", &plain(tick));
    }
    let mut ticks: Vec<f64> = points().map(|(x, _)| *x).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    for tick in ticks {
        svg += &text(xs.at(tick), BOTTOM + 24.0, "center", &plain(tick));
    }
    svg += &text(f64::midpoint(LEFT, RIGHT), HEIGHT - 24.0, "center grey", x);
    let y = if unit.is_empty() {
        y.into()
    } else {
        format!("{y}, {unit}")
    };
    svg += &text(MARGIN, 6.0, "grey", &y);

    let mut ends = Vec::new();
    // DLOCK last, on top of the others.
    for (index, Series { name, points }) in series.iter().enumerate().rev() {
        let (color, class, radius) = if name == DLOCK {
            (color(index), "dlock", 10)
        } else {
            (color(index), "", 7)
        };
        let path = points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1} ", xs.at(*x), ys.at(y.median)));
        let path: String = path.collect();
        svg += &format!("<polyline points=\"{path}\" stroke=\"{color}\" class=\"{class}\"/>\n");
        for (x, y) in points {
            let range = format!("stroke=\"{color}\" opacity=\"0.5\"");
            svg += &line(xs.at(*x), ys.at(y.min), xs.at(*x), ys.at(y.max), &range);
            svg += &circle(xs.at(*x), ys.at(y.median), radius, color);
        }
        if let Some((_, y)) = points.last() {
            ends.push((ys.at(y.median), format!("{name}  {}", number(y.median)), color));
        }
    }
    ends.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let heights = apart(ends.iter().map(|(height, ..)| *height).collect());
    for ((_, name, color), height) in ends.iter().zip(heights) {
        let weight = if name.starts_with(DLOCK) { "bold" } else { "" };
        svg += &circle(RIGHT + 30.0, height, 9, color);
        svg += &text(RIGHT + 52.0, height, weight, name);
    }
    svg
}

/// Moves heights, in ascending order, so that two are at least a step apart and all are above the bottom.
fn apart(mut heights: Vec<f64>) -> Vec<f64> {
    for index in 1..heights.len() {
        heights[index] = heights[index].max(heights[index - 1] + LEGEND_STEP);
    }
    let mut lowest = BOTTOM;
    for height in heights.iter_mut().rev() {
        *height = height.min(lowest);
        lowest = *height - LEGEND_STEP;
    }
    heights
}

/// `256`, `0.05`: no exponent, no trailing zeros.
fn plain(value: f64) -> String {
    if value >= 1.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.4}").trim_end_matches('0').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legend_with_close_names_moves_them_apart() {
        assert_eq!(apart(vec![10.0, 200.0]), [10.0, 200.0]);
        assert_eq!(apart(vec![100.0, 100.0]), [100.0, 100.0 + LEGEND_STEP]);
        assert_eq!(apart(vec![BOTTOM, BOTTOM]), [BOTTOM - LEGEND_STEP, BOTTOM]);
        assert!(apart(Vec::new()).is_empty());
    }

    #[test]
    fn axis_labels_are_round_and_have_no_exponent() {
        let axis = Axis::of([0.2, 10.0].into_iter(), 1.0, (0.0, 100.0));
        let ticks: Vec<_> = axis.ticks().map(plain).collect();
        assert_eq!(ticks, ["0.2", "0.5", "1", "2", "5", "10"]);
        assert_eq!([256.0, 0.05, 1000.0].map(plain), ["256", "0.05", "1000"]);
    }
}
