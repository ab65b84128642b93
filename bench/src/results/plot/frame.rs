//! The parts of every plot: title, how it was measured, and a footer with the environment.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{Canvas, font};
use crate::Result;
use crate::environment::Environment;

const MARGIN: i32 = 54;
const TITLE_BOTTOM: u32 = 150;
const FOOTER_SIZE: i32 = 21;
const FOOTER_LINE: i32 = 30;
/// Longer lines of the footer are wrapped.
const FOOTER_CHARS: usize = 150;

/// Height of title and footer.
pub fn height(environment: &Environment) -> u32 {
    TITLE_BOTTOM + footer_height(&footer(environment))
}

/// The lines, a rule above them, and margins.
fn footer_height(footer: &[String]) -> u32 {
    49 + FOOTER_LINE as u32 * footer.len() as u32
}

/// Returns the part of the area that remains for the figures.
pub fn draw<'a>(
    area: &Canvas<'a>,
    title: &str,
    about: &str,
    environment: &Environment,
) -> Result<Canvas<'a>> {
    area.fill(&WHITE)?;
    let bold = font(42, FontStyle::Bold).color(&BLACK);
    area.draw_text(title, &bold, (MARGIN, 36))?;
    let grey = RGBColor(90, 90, 90);
    area.draw_text(about, &font(26, FontStyle::Normal).color(&grey), (MARGIN, 98))?;

    let (width, height) = area.dim_in_pixel();
    let footer = footer(environment);
    let figures_bottom = height - footer_height(&footer);
    let footer_top = figures_bottom as i32 + 27;
    let rule = [
        (MARGIN, footer_top - 15),
        (width as i32 - MARGIN, footer_top - 15),
    ];
    area.draw(&PathElement::new(rule.to_vec(), RGBColor(210, 210, 210)))?;
    for (index, line) in footer.iter().enumerate() {
        let style = font(FOOTER_SIZE, FontStyle::Normal).color(&grey);
        let style = style.pos(Pos::new(HPos::Left, VPos::Top));
        area.draw_text(line, &style, (MARGIN, footer_top + FOOTER_LINE * index as i32))?;
    }
    let (_, below_title) = area.split_vertically(TITLE_BOTTOM);
    let (inner, _) = below_title.split_vertically(figures_bottom - TITLE_BOTTOM);
    Ok(inner)
}

fn footer(environment: &Environment) -> Vec<String> {
    let lines = environment.rows().map(|(name, what)| format!("{name}: {what}"));
    lines.iter().flat_map(|line| wrap(line)).collect()
}

/// Wraps a line between words.
fn wrap(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let last = lines.len() - 1;
        if lines[last].is_empty() {
            lines[last].push_str(word);
        } else if lines[last].chars().count() + word.chars().count() < FOOTER_CHARS {
            lines[last].push(' ');
            lines[last].push_str(word);
        } else {
            lines.push(format!("    {word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_is_wrapped_between_words() {
        let line = "word ".repeat(50);
        let lines = wrap(line.trim());
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.chars().count() <= FOOTER_CHARS));
        let words: usize = lines.iter().map(|line| line.split_whitespace().count()).sum();
        assert_eq!(words, 50);
        assert_eq!(wrap("short"), ["short"]);
    }
}
