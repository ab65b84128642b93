//! One value per name: bars that start at zero, or dots on a logarithmic axis if the longest bar would dwarf the
//! others.

use super::svg::{WIDTH, circle, color, line, text};
use crate::results::DLOCK;
use crate::results::stats::{Stats, number};

const LEFT: f64 = 530.0;
/// Room for the values, to the right of the longest bar.
const VALUES_WIDTH: f64 = 260.0;
const BAR_HEIGHT: f64 = 38.0;
const STEP: f64 = 84.0;
const BELOW: f64 = 60.0;
/// The axis is logarithmic if the values span a larger factor than this.
const MAX_LINEAR_FACTOR: f64 = 40.0;

pub struct Bar {
    pub name: String,
    pub value: Stats,
}

/// Maps values to pixels.
struct Scale {
    /// Left end of the axis if it is logarithmic, else `None`.
    low: Option<f64>,
    high: f64,
}

impl Scale {
    fn of(bars: &[Bar]) -> Self {
        let high = bars.iter().map(|bar| bar.value.max).fold(0.0, f64::max);
        let low = bars.iter().map(|bar| bar.value.min).fold(high, f64::min);
        let is_logarithmic = low > 0.0 && high / low > MAX_LINEAR_FACTOR;
        // Leaves some room to the left of the smallest value.
        let low = is_logarithmic.then_some(low / 2.0);
        Self { low, high }
    }

    fn x(&self, value: f64) -> f64 {
        let part = match self.low {
            Some(low) => (value / low).ln() / (self.high / low).ln(),
            None => value / self.high,
        };
        LEFT + part * (WIDTH - LEFT - VALUES_WIDTH)
    }
}

pub fn height(bars: usize) -> f64 {
    STEP * bars as f64 + BELOW
}

pub fn draw(unit: &str, bars: &[Bar]) -> String {
    let scale = Scale::of(bars);
    let middles = (0..).map(|index| STEP * (f64::from(index) + 0.5));
    let svg = bars.iter().zip(middles);
    let mut svg: String = svg.map(|(bar, y)| draw_bar(&scale, unit, bar, y)).collect();
    if scale.low.is_some() {
        let y = height(bars.len()) - BELOW / 2.0;
        svg += &text(LEFT, y, "grey small", "logarithmic scale");
    }
    svg
}

fn draw_bar(scale: &Scale, unit: &str, bar: &Bar, y: f64) -> String {
    let is_dlock = bar.name.starts_with(DLOCK);
    let (color, weight) = if is_dlock {
        (color(0), "bold")
    } else {
        ("#96a0ac", "")
    };
    let end = scale.x(bar.value.median);
    let mut svg = text(LEFT - 20.0, y, &format!("right {weight}"), &bar.name);
    if scale.low.is_some() {
        svg += &line(LEFT, y, end, y, "class=\"thin\"");
        svg += &circle(end, y, 12, color);
    } else {
        let (top, width) = (y - BAR_HEIGHT / 2.0, end - LEFT);
        svg += &format!(
            "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" fill=\"{color}\"/>\n"
        );
    }
    let (low, high) = (scale.x(bar.value.min), scale.x(bar.value.max));
    if high > low {
        svg += &line(low, y, high, y, "class=\"range\"");
        svg += &line(low, y - 9.0, low, y + 9.0, "class=\"range\"");
        svg += &line(high, y - 9.0, high, y + 9.0, "class=\"range\"");
    }
    let value = format!("{} {unit}", number(bar.value.median));
    svg + &text(high.max(end) + 24.0, y, weight, &value)
}
