//! One value per name: bars that start at zero, or dots on a logarithmic axis if the longest bar would dwarf the
//! others.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Bar, Canvas, color, font};
use crate::Result;
use crate::results::DLOCK;
use crate::results::stats::number;

const NAMES_WIDTH: i32 = 530;
const VALUES_WIDTH: i32 = 260;
const BAR_HEIGHT: i32 = 38;
const STEP: i32 = 84;
const ABOVE: i32 = 10;
const BELOW: i32 = 60;
/// The axis is logarithmic if the values span a larger factor than this.
const MAX_LINEAR_FACTOR: f64 = 40.0;

/// Maps values to pixels.
struct Scale {
    /// Left end of the axis if it is logarithmic, else `None`.
    low: Option<f64>,
    high: f64,
    width: f64,
}

impl Scale {
    fn of(bars: &[Bar], width: f64) -> Self {
        let values = || bars.iter().map(|bar| bar.value);
        let high = values().map(|value| value.max).fold(0.0, f64::max);
        let low = values().map(|value| value.min).fold(high, f64::min);
        let is_logarithmic = low > 0.0 && high / low > MAX_LINEAR_FACTOR;
        Self {
            // Leaves some room to the left of the smallest value.
            low: is_logarithmic.then_some(low / 2.0),
            high,
            width,
        }
    }

    fn x(&self, value: f64) -> i32 {
        let part = match self.low {
            Some(low) => (value / low).ln() / (self.high / low).ln(),
            None => value / self.high,
        };
        NAMES_WIDTH + (part * self.width) as i32
    }
}

pub fn height(bars: usize) -> u32 {
    (ABOVE + BELOW) as u32 + STEP as u32 * bars as u32
}

pub fn draw(area: &Canvas<'_>, unit: &str, bars: &[Bar]) -> Result<()> {
    let (width, _) = area.dim_in_pixel();
    let scale = Scale::of(bars, f64::from(width as i32 - NAMES_WIDTH - VALUES_WIDTH));

    for (index, bar) in bars.iter().enumerate() {
        let middle = ABOVE + STEP * index as i32 + STEP / 2;
        draw_bar(area, &scale, unit, bar, middle)?;
    }
    if scale.low.is_some() {
        let style = font(21, FontStyle::Normal).color(&RGBColor(120, 120, 120));
        let below = ABOVE + STEP * bars.len() as i32 + 12;
        area.draw_text("logarithmic scale", &style, (NAMES_WIDTH, below))?;
    }
    Ok(())
}

fn draw_bar(area: &Canvas<'_>, scale: &Scale, unit: &str, bar: &Bar, middle: i32) -> Result<()> {
    let is_dlock = bar.name.starts_with(DLOCK);
    let color = if is_dlock {
        color(0)
    } else {
        RGBColor(150, 160, 172)
    };
    let weight = if is_dlock {
        FontStyle::Bold
    } else {
        FontStyle::Normal
    };
    let text = || font(27, weight).color(&BLACK);
    let name = text().pos(Pos::new(HPos::Right, VPos::Center));
    area.draw_text(&bar.name, &name, (NAMES_WIDTH - 20, middle))?;

    let end = scale.x(bar.value.median);
    if scale.low.is_some() {
        area.draw(&PathElement::new(
            vec![(NAMES_WIDTH, middle), (end, middle)],
            RGBColor(225, 228, 232).stroke_width(3),
        ))?;
        area.draw(&Circle::new((end, middle), 12, color.filled()))?;
    } else {
        let corners = [
            (NAMES_WIDTH, middle - BAR_HEIGHT / 2),
            (end, middle + BAR_HEIGHT / 2),
        ];
        area.draw(&Rectangle::new(corners, color.filled()))?;
    }
    let (low, high) = (scale.x(bar.value.min), scale.x(bar.value.max));
    if high > low {
        let dark = RGBColor(40, 40, 40);
        area.draw(&PathElement::new(
            vec![(low, middle), (high, middle)],
            dark.stroke_width(3),
        ))?;
        for x in [low, high] {
            area.draw(&PathElement::new(
                vec![(x, middle - 9), (x, middle + 9)],
                dark.stroke_width(3),
            ))?;
        }
    }
    let style = text().pos(Pos::new(HPos::Left, VPos::Center));
    let value = format!("{} {unit}", number(bar.value.median));
    area.draw_text(value.trim(), &style, (high.max(end) + 24, middle))?;
    Ok(())
}
