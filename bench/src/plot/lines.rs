//! Values over values, a line a contender, both axes logarithmic.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{FONT, Series, color, number};
use crate::Result;
use crate::table::DLOCK;

const LEGEND_WIDTH: i32 = 250;
/// Between two names at the ends of lines.
const LEGEND_STEP: i32 = 24;

pub fn draw<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    x: &str,
    y: &str,
    series: &[Series],
) -> Result<()>
where
    B::ErrorType: 'static,
{
    let points = || series.iter().flat_map(|series| &series.points);
    let range = |values: &mut dyn Iterator<Item = f64>, room: f64| {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        low / room..high * room
    };
    let xs = range(&mut points().map(|(x, _)| *x), 1.08);
    let ys = range(&mut points().flat_map(|(_, y)| [y.low, y.high]), 1.4);
    let mut chart = ChartBuilder::on(area)
        .margin_left(24)
        .margin_right(LEGEND_WIDTH)
        .x_label_area_size(56)
        .y_label_area_size(86)
        .build_cartesian_2d(xs.log_scale(), ys.log_scale())?;
    let font = || (FONT, 16).into_font().color(&BLACK);
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .axis_desc_style((FONT, 17).into_font())
        .label_style(font())
        .x_label_formatter(&|x| plain(*x))
        .y_label_formatter(&|y| plain(*y))
        .bold_line_style(RGBColor(222, 226, 230))
        .light_line_style(WHITE)
        .axis_style(RGBColor(120, 120, 120))
        .draw()?;

    let mut ends = Vec::new();
    for (index, Series { name, points }) in series.iter().enumerate() {
        let color = color(index);
        let width = if name == DLOCK { 4 } else { 2 };
        let line = points.iter().map(|(x, y)| (*x, y.median));
        chart.draw_series(LineSeries::new(line, color.stroke_width(width)))?;
        chart.draw_series(points.iter().map(|(x, y)| {
            PathElement::new(vec![(*x, y.low), (*x, y.high)], color.mix(0.5).stroke_width(2))
        }))?;
        let size = if name == DLOCK { 6 } else { 4 };
        chart.draw_series(
            points
                .iter()
                .map(|(x, y)| Circle::new((*x, y.median), size, color.filled())),
        )?;
        if let Some((x, y)) = points.last() {
            let (_, height) = chart.backend_coord(&(*x, y.median));
            ends.push((height, name, color, y.median));
        }
    }
    draw_names(area, ends)
}

/// Each at the height of its line's end, moved apart where they would cover each other.
fn draw_names<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    mut ends: Vec<(i32, &String, RGBColor, f64)>,
) -> Result<()>
where
    B::ErrorType: 'static,
{
    ends.sort_by_key(|(height, ..)| *height);
    let (width, _) = area.dim_in_pixel();
    let (_, tops) = area.get_pixel_range();
    let heights = apart(
        &ends
            .iter()
            .map(|(height, ..)| *height - tops.start)
            .collect::<Vec<_>>(),
    );
    for ((_, name, color, value), height) in ends.iter().zip(heights) {
        let weight = if *name == DLOCK {
            FontStyle::Bold
        } else {
            FontStyle::Normal
        };
        let style = (FONT, 16).into_font().style(weight).color(color);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        let at = (width as i32 - LEGEND_WIDTH + 14, height);
        area.draw_text(&format!("{name}  {}", number(*value)), &style, at)?;
    }
    Ok(())
}

/// Heights in rising order, at least a step between two: those that are too near go down, then all of their
/// group up by half.
fn apart(heights: &[i32]) -> Vec<i32> {
    let mut apart: Vec<i32> = Vec::new();
    for &height in heights {
        let least = apart.last().map_or(height, |last| last + LEGEND_STEP);
        apart.push(height.max(least));
    }
    let moved = apart.iter().zip(heights).map(|(new, old)| new - old).max();
    let up = moved.unwrap_or(0) / 2;
    apart.iter().map(|height| height - up).collect()
}

/// `256`, `0.05`: no exponent, no zeros at the end.
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
    fn names_do_not_cover_each_other() {
        assert_eq!(apart(&[10, 200]), [10, 200]);
        let heights = apart(&[100, 100, 100]);
        assert_eq!(heights, [100 - LEGEND_STEP, 100, 100 + LEGEND_STEP]);
        assert!(apart(&[]).is_empty());
    }

    #[test]
    fn labels_have_no_exponent() {
        assert_eq!([256.0, 0.05, 1000.0].map(plain), ["256", "0.05", "1000"]);
    }
}
