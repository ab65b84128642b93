//! Writes the results: a CSV file, which starts with its environment as comments, and the plots.

use std::fs;
use std::path::Path;

use crate::environment::Environment;
use crate::error::Result;
use crate::results::page;
use crate::results::table::Summary;

/// Writes `results.csv` and the plots, and fills in the tables of `README.md` if there is one. Creates the directory if
/// it does not exist.
pub fn write(directory: &Path, environment: &Environment, summary: &Summary) -> Result<()> {
    fs::create_dir_all(directory)
        .map_err(|error| format!("cannot create {}: {error}", directory.display()))?;
    fs::write(directory.join("results.csv"), csv(environment, summary)?)?;
    let readme = directory.join("README.md");
    if let Ok(text) = fs::read_to_string(&readme) {
        fs::write(readme, page::fill(&text, summary))?;
    }
    summary
        .plots
        .iter()
        .try_for_each(|plot| plot.draw(directory, environment))
}

fn csv(environment: &Environment, summary: &Summary) -> Result<String> {
    let mut table = csv::Writer::from_writer(Vec::new());
    for figure in &summary.figures {
        table.serialize(figure)?;
    }
    let table = String::from_utf8(table.into_inner().map_err(|error| error.to_string())?)?;
    let rows = environment
        .rows()
        .map(|(name, value)| format!("# {name}: {value}\n"));
    let notes = summary.notes.iter();
    let notes = notes.map(|(workload, note)| format!("# note, {workload}: {note}\n"));
    Ok(rows.into_iter().chain(notes).collect::<String>() + &table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::stats::Stats;
    use crate::results::table::Figure;

    #[test]
    fn csv_of_results_has_all_figures_and_the_environment() -> Result<()> {
        let mut summary = Summary::default();
        summary.begin("cpu");
        let pair = Figure::new("pair, pipelined", Stats::of([1.5, 1.25, 2.0])).unit("us");
        let pair = pair.of("the \"other\"").ratio(Stats::of([1.125]));
        summary.add(pair.at_most(1.25));
        summary.add(Figure::new("fairness", Stats::of([1.0])).case("16 clients"));
        summary.note("etcd is not installed");
        let csv = csv(&Environment::example(), &summary)?;
        let lines: Vec<_> = csv.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "workload,implementation,metric,case,unit,median,min,max,ratio,target,met",
            "cpu,\"the \"\"other\"\"\",\"pair, pipelined\",,us,1.5,1.25,2.0,1.125,<= 1.25,false",
            "cpu,dlock,fairness,16 clients,,1.0,1.0,1.0,,,",
        ];
        assert_eq!(lines, expected);
        for part in [
            "# machine: 2 cores, a CPU",
            "Redis 7.0.15",
            "# note, cpu: etcd is not installed",
        ] {
            assert!(csv.contains(part), "{part} in\n{csv}");
        }
        Ok(())
    }
}
