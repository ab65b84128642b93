//! Plots as SVG files. Workloads provide the data, this module the layout.

mod bars;
mod lines;
mod svg;

use std::fs;
use std::path::Path;

use crate::environment::Environment;
use crate::error::Result;
pub use bars::Bar;
pub use lines::Series;
use svg::{MARGIN, STYLE, WIDTH, line, text};

/// Height of the title and of how it was measured.
const TOP: f64 = 150.0;
const FOOTER_LINE: f64 = 30.0;
/// Longer lines of the footer are wrapped.
const FOOTER_CHARS: usize = 150;

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

impl Plot {
    /// Writes the SVG file into this directory.
    pub fn draw(&self, directory: &Path, environment: &Environment) -> Result<()> {
        let file = directory.join(self.file).with_extension("svg");
        Ok(fs::write(file, self.svg(environment))?)
    }

    fn svg(&self, environment: &Environment) -> String {
        let (figures, height) = match &self.shape {
            Shape::Bars { unit, bars } => (bars::draw(unit, bars), bars::height(bars.len())),
            Shape::Lines { x, y, unit, series } => (lines::draw(x, y, unit, series), lines::HEIGHT),
        };
        let rule = TOP + height + 12.0;
        let (footer, bottom) = footer(environment, rule + FOOTER_LINE);
        let head = text(MARGIN, 57.0, "title", &self.title) + &text(MARGIN, 111.0, "grey", &self.about);
        let rule = line(MARGIN, rule, WIDTH - MARGIN, rule, "class=\"thin\"");
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{bottom}\" \
             viewBox=\"0 0 {WIDTH} {bottom}\">\n<style>{STYLE}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{head}<g transform=\"translate(0 {TOP})\">\n\
             {figures}</g>\n{rule}{footer}</svg>\n"
        )
    }
}

/// The environment from `top` on, and where it ends.
fn footer(environment: &Environment, top: f64) -> (String, f64) {
    let lines = environment.rows().map(|(name, what)| format!("{name}: {what}"));
    let mut y = top;
    let mut footer = String::new();
    for line in lines.iter().flat_map(|line| wrap(line)) {
        footer += &text(MARGIN, y, "grey small", &line);
        y += FOOTER_LINE;
    }
    (footer, y)
}

/// Wraps a line between words.
fn wrap(line: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in line.split(' ') {
        match lines.last_mut() {
            Some(last) if last.chars().count() + word.chars().count() < FOOTER_CHARS => {
                *last += " ";
                *last += word;
            }
            Some(_) => lines.push(format!("\u{a0}\u{a0}\u{a0}\u{a0}{word}")),
            None => lines.push(word.into()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::stats::Stats;

    #[test]
    fn plot_of_figures_names_implementations_and_environment() {
        let stats = Stats::of([1.0, 1.5, 2.0]);
        let name = || "a < b".to_owned();
        let bars = Shape::Bars {
            unit: "us",
            bars: vec![Bar {
                name: name(),
                value: stats,
            }],
        };
        let points = vec![(2.0, stats), (256.0, Stats::of([90.0]))];
        let lines = Shape::Lines {
            x: "clients",
            y: "wait",
            unit: "ms",
            series: vec![Series { name: name(), points }],
        };
        for shape in [bars, lines] {
            let plot = Plot {
                file: "plot",
                title: "What it costs".into(),
                about: "medians of 3 rounds".into(),
                shape,
            };
            let svg = plot.svg(&Environment::example());
            for text in [
                "What it costs",
                "medians of 3",
                "a &lt; b",
                "2 cores",
                "Redis 7.0.15",
                "--quick",
            ] {
                assert!(svg.contains(text), "{text} in\n{svg}");
            }
        }
    }

    #[test]
    fn long_line_is_wrapped_between_words() {
        let lines = wrap("word ".repeat(50).trim());
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.chars().count() <= FOOTER_CHARS));
        let words: usize = lines.iter().map(|line| line.split_whitespace().count()).sum();
        assert_eq!(words, 50);
        assert_eq!(wrap("short"), ["short"]);
    }
}
