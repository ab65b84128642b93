//! `make torture`: tests the guarantees of DLOCK under faults.

use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};

use clap::Parser;
use dlock_torture::clients::service::{self, ServiceConfig};
use dlock_torture::options::Options;
use dlock_torture::scenarios::Scenario;
use dlock_torture::{export, report, scenarios};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let Some(config) = ServiceConfig::from_args(&args) {
        return service::run_as_process(config);
    }
    run(&Options::parse())
}

fn run(options: &Options) -> ExitCode {
    println!("module  {}", dlock_testkit::module_path().display());
    println!("{}", report::header());
    let mut all_held = true;
    for scenario in options.scenarios() {
        match run_one(scenario, options) {
            Ok(held) => all_held &= held,
            Err(error) => {
                eprintln!("dlock-torture: {}: {error}", scenario.name);
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::from(u8::from(!all_held))
}

fn run_one(scenario: &Scenario, options: &Options) -> Result<bool, String> {
    let count = options.count_of(scenario);
    let start = Instant::now();
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let verdict = scenarios::run_scenario(scenario, options.seed, count, &program)?;
    let took = start.elapsed().as_secs();
    let row = report::row(scenario, options.seed, count, &verdict);
    println!("{row}  ({took} s)");
    if !verdict.holds() {
        println!("{}", report::evidence(scenario, options.seed, count, &verdict));
    }
    if let Some(directory) = &options.history {
        fs::create_dir_all(directory).map_err(|error| error.to_string())?;
        for (n, history) in verdict.histories.iter().enumerate() {
            let texts = [("txt", report::full(history)), ("json", export::json(history))];
            for (kind, text) in texts {
                let file = directory.join(format!("{}.{n}.{kind}", scenario.name));
                fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
    }
    Ok(verdict.holds())
}
