//! Text tables.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use crate::output::{BOLD, paint};

/// Rows of cells under a header. Columns whose title starts with `>` are right-aligned, as numbers are.
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: &[&'static str]) -> Self {
        let titles = header
            .iter()
            .map(|title| title.trim_start_matches('>').to_owned());
        Self {
            header: header.to_vec(),
            rows: vec![titles.collect()],
        }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for (n, line) in self.lines().iter().enumerate() {
            match n {
                0 => writeln!(out, "{}", paint(BOLD, line))?,
                _ => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }

    /// That of the titles comes first.
    pub fn lines(&self) -> Vec<String> {
        let widest = |column| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell: &String| cell.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(widest).collect();
        self.rows.iter().map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let cells = cells.iter().zip(widths).zip(&self.header);
        let cells = cells.map(|((cell, width), title)| {
            let padding = " ".repeat(width - cell.width());
            match title.starts_with('>') {
                true => padding + cell,
                false => cell.clone() + &padding,
            }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_a_terminal_shows() {
        let mut table = Table::new(&["LOCK", ">FENCE"]);
        for name in ["plain", "東京"] {
            table.row(vec![name.to_owned(), "7".to_owned()]);
        }
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("\nplain      7\n東京       7\n"), "{text}");
    }
}
