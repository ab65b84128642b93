//! Values over values, a line per implementation, both axes logarithmic.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Canvas, Series, color, font};
use crate::Result;
use crate::results::DLOCK;
use crate::results::stats::number;

pub const HEIGHT: u32 = 880;

const LEGEND_WIDTH: i32 = 500;
/// Distance between two names in the legend.
const LEGEND_STEP: i32 = 38;

pub fn draw(area: &Canvas<'_>, x: &str, y: &str, series: &[Series]) -> Result<()> {
    let points = || series.iter().flat_map(|series| &series.points);
    let range = |values: &mut dyn Iterator<Item = f64>, room: f64| {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        low / room..high * room
    };
    let xs = range(&mut points().map(|(x, _)| *x), 1.08);
    let ys = range(&mut points().flat_map(|(_, y)| [y.min, y.max]), 1.4);
    let mut chart = ChartBuilder::on(area)
        .margin_left(36)
        .margin_right(LEGEND_WIDTH)
        .x_label_area_size(84)
        .y_label_area_size(130)
        .build_cartesian_2d(xs.log_scale(), ys.clone().log_scale())?;
    let labels = || font(24, FontStyle::Normal).color(&BLACK);
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .axis_desc_style(font(26, FontStyle::Normal))
        .label_style(labels())
        .disable_x_mesh()
        // Drawn below, at the points only.
        .set_tick_mark_size(LabelAreaPosition::Bottom, 0)
        .x_label_formatter(&|_| String::new())
        .y_label_formatter(&|y| if is_round(*y) { plain(*y) } else { String::new() })
        .bold_line_style(RGBColor(222, 226, 230))
        .light_line_style(WHITE)
        .axis_style(RGBColor(120, 120, 120))
        .draw()?;

    let mut ticks: Vec<f64> = points().map(|(x, _)| *x).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let bottom = chart.plotting_area().get_pixel_range().1.end;
    let (columns, rows) = area.get_pixel_range();
    for tick in ticks {
        let (left, _) = chart.backend_coord(&(tick, ys.start));
        let style = labels().pos(Pos::new(HPos::Center, VPos::Top));
        area.draw_text(
            &plain(tick),
            &style,
            (left - columns.start, bottom - rows.start + 12),
        )?;
    }

    let mut ends = Vec::new();
    // DLOCK last, on top of the others.
    for (index, Series { name, points }) in series.iter().enumerate().rev() {
        let color = color(index);
        let width = if name == DLOCK { 7 } else { 3 };
        let line = points.iter().map(|(x, y)| (*x, y.median));
        chart.draw_series(LineSeries::new(line, color.stroke_width(width)))?;
        chart.draw_series(points.iter().map(|(x, y)| {
            PathElement::new(vec![(*x, y.min), (*x, y.max)], color.mix(0.5).stroke_width(3))
        }))?;
        let size = if name == DLOCK { 10 } else { 7 };
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

/// Each next to the end of its line, moved so that none overlap.
fn draw_names(area: &Canvas<'_>, mut ends: Vec<(i32, &String, RGBColor, f64)>) -> Result<()> {
    ends.sort_by_key(|(height, ..)| *height);
    let (width, _) = area.dim_in_pixel();
    let (_, rows) = area.get_pixel_range();
    let heights: Vec<_> = ends.iter().map(|(height, ..)| *height - rows.start).collect();
    let heights = apart(&heights, LEGEND_STEP / 2);
    for ((_, name, color, value), height) in ends.iter().zip(heights) {
        let weight = if *name == DLOCK {
            FontStyle::Bold
        } else {
            FontStyle::Normal
        };
        let style = font(25, weight).color(color);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        let at = (width as i32 - LEGEND_WIDTH + 24, height);
        area.draw_text(&format!("{name}  {}", number(*value)), &style, at)?;
    }
    Ok(())
}

/// Moves heights, in ascending order, so that two are at least a step apart and none is above `top`. Labels that are
/// too close form a group around their mean.
fn apart(heights: &[i32], top: i32) -> Vec<i32> {
    // Start and size of each group.
    let mut groups: Vec<(i32, i32)> = Vec::new();
    for &height in heights {
        let mut group = (height.max(top), 1);
        while let Some(&(start, count)) = groups.last()
            && start + count * LEGEND_STEP > group.0
        {
            groups.pop();
            let size = count + group.1;
            let middle = start * count + (group.0 - count * LEGEND_STEP) * group.1;
            group = ((middle / size).max(top), size);
        }
        groups.push(group);
    }
    let of_group = |(start, count): (i32, i32)| (0..count).map(move |place| start + place * LEGEND_STEP);
    groups.into_iter().flat_map(of_group).collect()
}

/// 1, 2 or 5 times a power of ten: other ticks are too dense on a logarithmic axis.
fn is_round(value: f64) -> bool {
    let digit = value / 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .iter()
        .any(|round| (digit - round).abs() < 0.01)
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
        assert_eq!(apart(&[10, 200], 0), [10, 200]);
        let heights = apart(&[100, 100, 100], 0);
        assert_eq!(heights, [100 - LEGEND_STEP, 100, 100 + LEGEND_STEP]);
        assert_eq!(apart(&[5, 5, 5], 0), [0, LEGEND_STEP, 2 * LEGEND_STEP]);
        assert!(apart(&[], 0).is_empty());
    }

    #[test]
    fn axis_labels_have_no_exponent() {
        assert_eq!([256.0, 0.05, 1000.0].map(plain), ["256", "0.05", "1000"]);
        assert_eq!(
            [1000.0, 0.05, 900.0, 0.2].map(is_round),
            [true, true, false, true]
        );
    }
}
