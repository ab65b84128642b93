//! Writes the results: a CSV file, which starts with its environment as comments, and the plots.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::environment::Environment;
use crate::results::table::Summary;

/// Starts a comment line in the CSV file.
const COMMENT: u8 = b'#';

/// Writes `results.csv` and the plots. Creates the directory if it does not exist.
pub fn write(directory: &Path, environment: &Environment, summary: &Summary) -> Result<()> {
    fs::create_dir_all(directory)
        .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    fs::write(directory.join("results.csv"), csv(environment, summary)?)?;
    for plot in summary.plots() {
        plot.draw(directory, environment)?;
    }
    Ok(())
}

fn csv(environment: &Environment, summary: &Summary) -> Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    for row in summary.rows() {
        table.serialize(row)?;
    }
    let table = String::from_utf8(table.into_inner().map_err(|error| error.to_string())?)?;
    let rows = environment.rows().map(|(name, value)| (name.to_owned(), value));
    let notes = summary.notes().iter();
    let notes = notes.map(|(workload, note)| (format!("note, {workload}"), note.clone()));
    let comments = rows.into_iter().chain(notes);
    let comments = comments.map(|(name, text)| format!("{} {name}: {text}\n", char::from(COMMENT)));
    Ok(comments.collect::<String>() + &table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::stats::Stats;
    use crate::results::table::{Figure, Row};

    fn summary() -> Summary {
        let mut summary = Summary::default();
        summary.begin("cpu");
        let pair = Figure::new("pair, pipelined", Stats::of([1.5, 1.25, 2.0]));
        summary.add(
            pair.unit("us")
                .of("the \"other\"")
                .ratio(Stats::of([1.125]))
                .at_most(1.25),
        );
        summary.add(
            Figure::new("fairness", Stats::of([0.1 + 0.2]))
                .case("16 clients")
                .at_least(0.99),
        );
        summary.note("etcd is not installed");
        summary
    }

    #[test]
    fn csv_of_results_has_all_rows_and_the_environment() -> Result<()> {
        let summary = summary();
        let environment = Environment {
            cpu: "a CPU, fast".into(),
            cores: 2,
            kernel: "Linux 6.1".into(),
            load: "0.10".into(),
            server: "Redis 7.0.15".into(),
            module: "dlock 0.1.0".into(),
            command_line: "dlock-bench --quick".into(),
        };
        let csv = csv(&environment, &summary)?;
        let mut reader = csv::ReaderBuilder::new()
            .comment(Some(COMMENT))
            .from_reader(csv.as_bytes());
        let rows = reader
            .deserialize()
            .collect::<std::result::Result<Vec<Row>, _>>()?;
        assert_eq!(rows, summary.rows());
        let header = csv.lines().find(|line| !line.starts_with('#'));
        assert_eq!(
            header,
            Some("workload,implementation,metric,case,unit,median,min,max,ratio,target,met")
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
