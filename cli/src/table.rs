//! Tables for people.

use std::io::{self, Write};

use crate::text::{Colour, Paint};

/// Rows of cells under a headline. Numbers stand to the right.
pub struct Table {
    headline: Vec<&'static str>,
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A headline that begins with `>` belongs to a column of numbers.
    pub fn new(headline: &[&'static str]) -> Self {
        Self {
            headline: headline.iter().map(|head| head.trim_start_matches('>')).collect(),
            right: headline.iter().map(|head| head.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn write(&self, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
        let mut widths: Vec<usize> = self.headline.iter().map(|head| head.len()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let headline: Vec<String> = self.headline.iter().map(|&head| head.to_owned()).collect();
        writeln!(
            out,
            "{}",
            paint.paint(Colour::Bold, &self.line(&headline, &widths))
        )?;
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
