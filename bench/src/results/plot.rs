//! Pictures of the figures: what they show is data, made by the works; how they look is decided here.

mod bars;
mod frame;
mod lines;

use std::path::Path;

use plotters::prelude::*;
use plotters::style::register_font;

use crate::Result;
use crate::machine::Origin;
use crate::results::spread::Spread;

/// Large enough that the letters of the PNG stay even when it is shown smaller.
const WIDTH: u32 = 1920;
const FONT: &str = "sans-serif";

/// Letters of so many pixels.
fn font(size: i32, style: FontStyle) -> FontDesc<'static> {
    FontDesc::new(FontFamily::Name(FONT), f64::from(size), style)
}

/// What a picture shows.
pub struct Plot {
    /// Without its ending: there is one as SVG and one as PNG.
    pub file: &'static str,
    pub title: String,
    /// How it was measured, in a line.
    pub about: String,
    pub shape: Shape,
}

pub enum Shape {
    /// One value a name, below each other.
    Bars { unit: &'static str, bars: Vec<Bar> },
    /// Values over values, both on logarithmic axes: everything here spans orders of magnitude.
    Lines {
        x: &'static str,
        y: &'static str,
        unit: &'static str,
        series: Vec<Series>,
    },
}

pub struct Bar {
    pub name: String,
    pub value: Spread,
}

pub struct Series {
    pub name: String,
    /// Above zero, as the axes need it. In the order of `x`.
    pub points: Vec<(f64, Spread)>,
}

impl Plot {
    /// Both files, into this folder.
    pub fn draw(&self, folder: &Path, origin: &Origin) -> Result<()> {
        for (style, font) in [
            (FontStyle::Normal, dejavu::sans::regular()),
            (FontStyle::Bold, dejavu::sans::bold()),
        ] {
            register_font(FONT, style, font).map_err(|_| "the font of the plots cannot be read")?;
        }
        let png = folder.join(self.file).with_extension("png");
        let size = (WIDTH, frame::height(origin) + self.shape.height());
        self.draw_on(&BitMapBackend::new(&png, size).into_drawing_area(), origin)?;
        let svg = folder.join(self.file).with_extension("svg");
        self.draw_on(&SVGBackend::new(&svg, size).into_drawing_area(), origin)
    }

    fn draw_on<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, plotters::coord::Shift>,
        origin: &Origin,
    ) -> Result<()>
    where
        B::ErrorType: 'static,
    {
        let inner = frame::draw(area, &self.title, &self.about, origin)?;
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

/// A colour for the `index`th contender, told apart by colour-blind eyes too (Okabe and Ito).
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

/// Three digits that say something, or all before the point.
fn number(value: f64) -> String {
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
    use std::fs;

    fn origin() -> Origin {
        Origin {
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
    fn a_picture_names_who_took_part_and_where_it_comes_from() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let spread = Spread::of([1.0, 1.5, 2.0]);
        let bars = Shape::Bars {
            unit: "us",
            bars: vec![Bar {
                name: "dlock".into(),
                value: spread,
            }],
        };
        let lines = Shape::Lines {
            x: "clients",
            y: "wait",
            unit: "ms",
            series: vec![Series {
                name: "dlock".into(),
                points: vec![(2.0, spread), (256.0, Spread::of([90.0]))],
            }],
        };
        for (file, shape) in [("bars", bars), ("lines", lines)] {
            let plot = Plot {
                file,
                title: "What it costs".into(),
                about: "medians of 3 rounds".into(),
                shape,
            };
            plot.draw(folder.path(), &origin())?;
            let png = fs::read(folder.path().join(file).with_extension("png"))?;
            assert!(png.starts_with(b"\x89PNG"));
            let svg = fs::read_to_string(folder.path().join(file).with_extension("svg"))?;
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
