//! Text tables.

use std::io::{self, Write};

use crate::output::{Color, Painter};

/// Rows of cells under a header. Columns of numbers are right-aligned.
pub struct Table {
    header: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A title that starts with `>` makes the column right-aligned.
    pub fn new(header: &[&'static str]) -> Self {
        Self {
            header: header.iter().map(|title| title.trim_start_matches('>')).collect(),
            right: header.iter().map(|title| title.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn write(&self, out: &mut dyn Write, paint: Painter) -> io::Result<()> {
        let mut widths: Vec<usize> = self.header.iter().map(|title| title.len()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let header: Vec<String> = self.header.iter().map(|&title| title.to_owned()).collect();
        writeln!(out, "{}", paint.paint(Color::Bold, &self.line(&header, &widths)))?;
        self.rows
            .iter()
            .try_for_each(|row| writeln!(out, "{}", self.line(row, &widths)))
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let cells = cells.iter().zip(widths).zip(&self.right);
        let cells: Vec<String> = cells
            .map(|((cell, &width), right)| {
                if *right {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            })
            .collect();
        cells.join("  ").trim_end().to_owned()
    }
}
