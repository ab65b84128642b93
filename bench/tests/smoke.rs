//! The benchmarks themselves: whether every workload runs, and measures what its targets are about.

use std::path::Path;
use std::process::{Command, Output};
use std::thread;

fn bench(workload: &str, csv: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock-bench"));
    command.env("DLOCK_MODULE", dlock_testkit::module_path());
    command.args(["--smoke", "--only", workload, "--csv"]).arg(csv);
    command.output().expect("the benchmarks can be run")
}

#[test]
fn every_workload_measures_a_figure_for_each_of_its_targets() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // The error names all of them.
    let error = bench("none", directory.path()).stderr;
    let error = String::from_utf8_lossy(&error);
    let names = error
        .split_once("[possible values: ")
        .and_then(|(_, rest)| rest.split_once(']'));
    let names = names.expect("a list of workloads").0.split(", ");
    thread::scope(|scope| {
        for name in names {
            let csv = directory.path().join(name);
            scope.spawn(move || {
                // It fails by itself if nothing was measured for a target.
                let output = bench(name, &csv);
                assert!(
                    output.status.success(),
                    "{name}: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
            });
        }
    });
}
