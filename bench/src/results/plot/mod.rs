//! Plots as SVG files. Workloads provide the data, this module the layout.

mod bars;
mod frame;
mod lines;

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::Result;
use crate::environment::Environment;
use crate::results::stats::Stats;

/// In pixels.
const WIDTH: u32 = 1920;
/// The viewer chooses the font.
const FONT: &str = "sans-serif";

fn font(size: i32, style: FontStyle) -> FontDesc<'static> {
    FontDesc::new(FontFamily::Name(FONT), f64::from(size), style)
}

/// A part of a plot to draw on, in pixels.
type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The data of a plot.
pub struct Plot {
    /// File name without extension.
    pub file: &'static str,
    pub title: String,
    /// How it was measured, in one line.
    pub about: String,
    pub shape: Shape,
}

pub enum Shape {
    /// One value per name.
    Bars { unit: &'static str, bars: Vec<Bar> },
    /// Values over values, both on logarithmic axes, since the figures span orders of magnitude.
    Lines {
        x: &'static str,
        y: &'static str,
        unit: &'static str,
        series: Vec<Series>,
    },
}

pub struct Bar {
    pub name: String,
    pub value: Stats,
}

pub struct Series {
    pub name: String,
    /// Sorted by `x`. Greater than zero, because of the logarithmic axes.
    pub points: Vec<(f64, Stats)>,
}

impl Plot {
    /// Writes the SVG file into this directory.
    pub fn draw(&self, directory: &Path, environment: &Environment) -> Result<()> {
        let size = (WIDTH, frame::height(environment) + self.shape.height());
        let svg = directory.join(self.file).with_extension("svg");
        let area = SVGBackend::new(&svg, size).into_drawing_area();
        let inner = frame::draw(&area, &self.title, &self.about, environment)?;
        match &self.shape {
            Shape::Bars { unit, bars } => bars::draw(&inner, unit, bars)?,
            Shape::Lines { x, y, unit, series } => {
                let y = if unit.is_empty() {
                    (*y).into()
                } else {
                    format!("{y}, {unit}")
                };
                lines::draw(&inner, x, &y, series)?;
            }
        }
        area.present()?;
        Ok(())
    }
}

impl Shape {
    fn height(&self) -> u32 {
        match self {
            Self::Bars { bars, .. } => bars::height(bars.len()),
            Self::Lines { .. } => lines::HEIGHT,
        }
    }
}

/// A colour of the `index`th implementation, from the colour-blind safe palette of Okabe and Ito.
fn color(index: usize) -> RGBColor {
    const COLORS: [RGBColor; 8] = [
        RGBColor(0, 114, 178),
        RGBColor(230, 159, 0),
        RGBColor(0, 158, 115),
        RGBColor(213, 94, 0),
        RGBColor(204, 121, 167),
        RGBColor(86, 180, 233),
        RGBColor(120, 120, 120),
        RGBColor(150, 120, 0),
    ];
    COLORS[index % COLORS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn environment() -> Environment {
        Environment {
            cpu: "a CPU".into(),
            cores: 2,
            kernel: "Linux 6.1".into(),
            load: "0.10".into(),
            server: "Redis 7.0.15".into(),
            module: "dlock 0.1.0".into(),
            command_line: "dlock-bench --quick".into(),
        }
    }

    #[test]
    fn plot_of_figures_names_implementations_and_environment() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let stats = Stats::of([1.0, 1.5, 2.0]);
        let bars = Shape::Bars {
            unit: "us",
            bars: vec![Bar {
                name: "dlock".into(),
                value: stats,
            }],
        };
        let lines = Shape::Lines {
            x: "clients",
            y: "wait",
            unit: "ms",
            series: vec![Series {
                name: "dlock".into(),
                points: vec![(2.0, stats), (256.0, Stats::of([90.0]))],
            }],
        };
        for (file, shape) in [("bars", bars), ("lines", lines)] {
            let plot = Plot {
                file,
                title: "What it costs".into(),
                about: "medians of 3 rounds".into(),
                shape,
            };
            plot.draw(directory.path(), &environment())?;
            let svg = fs::read_to_string(directory.path().join(file).with_extension("svg"))?;
            for text in [
                "What it costs",
                "medians of 3",
                "dlock",
                "2 cores",
                "Redis 7.0.15",
                "--quick",
            ] {
                assert!(svg.contains(text), "{file}: {text}");
            }
        }
        Ok(())
    }
}
