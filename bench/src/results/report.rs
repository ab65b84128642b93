//! The results as files: JSON for programs, CSV for a spreadsheet, each with where they come from.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::machine::Origin;
use crate::results::table::{Row, Summary};

/// Lines of the CSV file that are none of the table.
const COMMENT: u8 = b'#';

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub origin: Origin,
    pub figures: Vec<Row>,
    pub notes: Vec<Note>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    pub work: String,
    pub text: String,
}

impl Report {
    pub fn of(origin: &Origin, summary: &Summary) -> Self {
        let note = |(work, text): &(&str, String)| Note {
            work: (*work).into(),
            text: text.clone(),
        };
        Self {
            origin: origin.clone(),
            figures: summary.rows().to_vec(),
            notes: summary.notes().iter().map(note).collect(),
        }
    }

    fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    fn csv(&self) -> Result<String> {
        let mut table = csv::Writer::from_writer(Vec::new());
        for row in &self.figures {
            table.serialize(row)?;
        }
        let table = String::from_utf8(table.into_inner().map_err(|error| error.to_string())?)?;
        let origin = self.origin.lines().map(|(name, what)| (name.to_owned(), what));
        let notes = self.notes.iter();
        let notes = notes.map(|note| (format!("note, {}", note.work), note.text.clone()));
        let comments = origin.into_iter().chain(notes);
        let comments = comments.map(|(name, what)| format!("{} {name}: {what}\n", char::from(COMMENT)));
        Ok(comments.collect::<String>() + &table)
    }
}

/// `results.json`, `results.csv` and the plots, in this folder, which is made where it is not there.
pub fn write(folder: &Path, origin: &Origin, summary: &Summary) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| format!("no folder {}: {error}", folder.display()))?;
    let report = Report::of(origin, summary);
    fs::write(folder.join("results.json"), report.json()?)?;
    fs::write(folder.join("results.csv"), report.csv()?)?;
    for plot in summary.plots() {
        plot.draw(folder, origin)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::spread::Spread;
    use crate::results::table::Figure;

    fn report() -> Report {
        let mut summary = Summary::default();
        summary.begin("cpu");
        let pair = Figure::new("pair, pipelined", Spread::of([1.5, 1.25, 2.0]));
        summary.add(
            pair.unit("us")
                .of("the \"floor\"")
                .ratio(Spread::of([1.125]))
                .at_most(1.25),
        );
        summary.add(
            Figure::new("fairness", Spread::of([0.1 + 0.2]))
                .case("16 clients")
                .at_least(0.99),
        );
        summary.note("etcd is not installed");
        let origin = Origin {
            cpu: "a CPU, fast".into(),
            cores: 2,
            kernel: "Linux 6.1".into(),
            load: "0.10".into(),
            server: "Redis 7.0.15".into(),
            module: "dlock 0.1.0".into(),
            command_line: "dlock-bench --quick".into(),
        };
        Report::of(&origin, &summary)
    }

    #[test]
    fn json_says_what_the_report_says() -> Result<()> {
        let report = report();
        assert_eq!(serde_json::from_str::<Report>(&report.json()?)?, report);
        Ok(())
    }

    #[test]
    fn csv_has_a_row_a_figure_and_says_where_it_comes_from() -> Result<()> {
        let report = report();
        let csv = report.csv()?;
        let mut reader = csv::ReaderBuilder::new()
            .comment(Some(COMMENT))
            .from_reader(csv.as_bytes());
        let rows = reader
            .deserialize()
            .collect::<std::result::Result<Vec<Row>, _>>()?;
        assert_eq!(rows, report.figures);
        let header = csv.lines().find(|line| !line.starts_with('#'));
        assert_eq!(
            header,
            Some("work,contender,metric,case,unit,median,min,max,ratio,target,met")
        );
        for part in [
            "2 cores, a CPU, fast",
            "Redis 7.0.15",
            "dlock-bench --quick",
            "# note, cpu: etcd",
        ] {
            assert!(csv.contains(part), "{part} in\n{csv}");
        }
        Ok(())
    }
}
