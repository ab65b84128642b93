//! A screen of a terminal as a picture of text. What fonts draw with gaps, bars and lines, is drawn as shapes.

use std::fmt::Write;

use vt100::{Cell, Color, Screen};

const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: f64 = 18.0;
const FONT_SIZE: f64 = 14.0;
/// From the top of a cell to the line that letters stand on.
const BASELINE: f64 = 13.5;
const MARGIN: f64 = 14.0;

const BACKGROUND: &str = "#161b22";
const FOREGROUND: &str = "#d0d7de";
/// The first eight colours of terminals.
const COLOURS: [&str; 8] = [
    "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#d0d7de",
];

/// The look of a piece of text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    ink: &'static str,
    paper: &'static str,
    bold: bool,
}

pub fn of(screen: &Screen) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let width = f64::from(columns) * CELL_WIDTH + 2.0 * MARGIN;
    let height = f64::from(rows) * CELL_HEIGHT + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"{FONT_SIZE}\">\n\
         <title>dlock top on a busy server</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for row in 0..rows {
        draw_row(&mut svg, screen, row, columns);
    }
    svg + "</svg>\n"
}

/// Draws pieces of the same look, each at its place: so letters stay in their columns in any font.
fn draw_row(svg: &mut String, screen: &Screen, row: u16, columns: u16) {
    let mut column = 0;
    while column < columns {
        let start = column;
        let look = look(cell(screen, row, start));
        let mut text = String::new();
        while column < columns && self::look(cell(screen, row, column)) == look {
            let cell = cell(screen, row, column);
            text += if cell.has_contents() { cell.contents() } else { " " };
            column += 1;
        }
        draw(svg, (row, start), &text, look);
    }
}

fn cell(screen: &Screen, row: u16, column: u16) -> &Cell {
    screen.cell(row, column).expect("a cell of the screen")
}

fn look(cell: &Cell) -> Look {
    let ink = colour(cell.fgcolor(), FOREGROUND);
    let paper = colour(cell.bgcolor(), BACKGROUND);
    let (ink, paper) = if cell.inverse() {
        (paper, ink)
    } else {
        (ink, paper)
    };
    Look {
        ink,
        paper,
        bold: cell.bold(),
    }
}

/// Other colours than those of the tool are not drawn.
fn colour(colour: Color, usual: &'static str) -> &'static str {
    match colour {
        Color::Idx(n) => COLOURS.get(usize::from(n)).copied().unwrap_or(usual),
        _ => usual,
    }
}

fn draw(svg: &mut String, (row, column): (u16, u16), text: &str, look: Look) {
    let (x, y) = (
        MARGIN + f64::from(column) * CELL_WIDTH,
        MARGIN + f64::from(row) * CELL_HEIGHT,
    );
    let width = text.chars().count() as f64 * CELL_WIDTH;
    if look.paper != BACKGROUND {
        rectangle(svg, (x, y), (width, CELL_HEIGHT), look.paper);
    }
    let mut words = String::new();
    for (n, letter) in text.chars().enumerate() {
        let at = x + n as f64 * CELL_WIDTH;
        words.push(match letter {
            '\u{2581}'..='\u{2588}' => {
                let height = f64::from(u32::from(letter) - 0x2580) / 8.0 * CELL_HEIGHT;
                // Bars that overlap a little show no seams.
                rectangle(
                    svg,
                    (at, y + CELL_HEIGHT - height),
                    (CELL_WIDTH + 0.2, height),
                    look.ink,
                );
                ' '
            }
            '─' => {
                rectangle(
                    svg,
                    (at, y + CELL_HEIGHT / 2.0),
                    (CELL_WIDTH + 0.2, 1.0),
                    look.ink,
                );
                ' '
            }
            other => other,
        });
    }
    for (start, word) in pieces(&words) {
        draw_word(svg, (x + start as f64 * CELL_WIDTH, y + BASELINE), word, look);
    }
}

/// The words of a text with the columns where they start.
fn pieces(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut column = 0;
    for word in text.split(' ') {
        if !word.is_empty() {
            found.push((column, word));
        }
        column += word.chars().count() + 1;
    }
    found
}

fn draw_word(svg: &mut String, (x, y): (f64, f64), word: &str, look: Look) {
    let length = word.chars().count() as f64 * CELL_WIDTH;
    let weight = if look.bold { " font-weight=\"bold\"" } else { "" };
    let word = word.replace('&', "&amp;").replace('<', "&lt;");
    _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" fill=\"{}\"{weight}>{word}</text>",
        look.ink
    );
}

fn rectangle(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
    _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\" \
         shape-rendering=\"crispEdges\"/>"
    );
}
