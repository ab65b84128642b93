//! `make bench-check`: counts instructions with callgrind and compares them with `baseline.txt`. Unlike times, counts
//! hardly depend on what else the machine does.
//!
//! Counts transitions of the core, in this program, and the module's commands on a real server, including the server
//! functions that they call.
//!
//! Why not gungraun (formerly iai-callgrind): it would count the transitions, but the commands need callgrind on a
//! server anyway, and the counts of both belong into one table with one limit. Its baselines are raw callgrind output
//! below `target/`; limits against committed numbers have no record of compiler and server, without which they mean
//! nothing. It builds benchmarks with `panic = "unwind"`, unlike the module, and needs a runner of 170 crates that has
//! to be installed in the same version.

mod baseline;
mod callgrind;
mod core_steps;
mod error;
mod server_commands;

use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::{env, fs};

use baseline::Baseline;
use callgrind::Callgrind;
use error::Result;
use server_commands::server_program;

const USAGE: &str = "\
dlock-bench-check [--update]

  --update   write the current counts as the new baseline

environment
  CI             if set, it is an error that valgrind is not installed
  DLOCK_SERVER   server program, default redis-server
  DLOCK_MODULE   module, default target/release/libdlock.so

exit code: 0 no regression, 1 regression, 2 could not compare";

/// Argument with which this program runs a scenario under callgrind.
const RUN_SCENARIO: &str = "run-scenario";

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.txt");

const NOT_INSTALLED: &str =
    "valgrind is not installed, instructions were NOT counted (Debian: apt-get install valgrind)";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        [] => check(),
        ["--update"] => update(),
        [RUN_SCENARIO, name] => core_steps::run(name).map(|()| ExitCode::SUCCESS),
        _ => Err(USAGE.into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("bench-check: {error}");
        ExitCode::from(2)
    })
}

fn check() -> Result<ExitCode> {
    // In CI, a skipped check would look like a passed one.
    if !callgrind::is_installed() && env::var_os("CI").is_none() {
        println!("bench-check: {NOT_INSTALLED}");
        return Ok(ExitCode::SUCCESS);
    }
    let baseline = Baseline::parse(&fs::read_to_string(BASELINE)?)?;
    let current = count()?;
    print!("{}", current.table(&baseline));
    if let Some(difference) = current.difference_to(&baseline) {
        return Err(format!(
            "{difference}: the counts are not comparable. Write a baseline of the unchanged code with \
             `make bench-check ARGS=--update`, then count again with your changes"
        )
        .into());
    }
    let regressions = current.regressions_from(&baseline);
    if regressions.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "regression of more than {} %: {}. Fix it, or explain in the commit why the cost is necessary and write a new \
         baseline with `make bench-check ARGS=--update`",
        baseline::TOLERANCE_PERCENT,
        regressions.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

fn update() -> Result<ExitCode> {
    let current = count()?;
    fs::write(BASELINE, current.to_string())?;
    print!("{current}");
    Ok(ExitCode::SUCCESS)
}

fn count() -> Result<Baseline> {
    if !callgrind::is_installed() {
        return Err(NOT_INSTALLED.into());
    }
    let mut counts = Vec::new();
    for scenario in &core_steps::SCENARIOS {
        let count = count_core(scenario)? / core_steps::ROUNDS;
        counts.push((format!("core: {}", scenario.name), count));
    }
    for scenario in &server_commands::SCENARIOS {
        let count = server_commands::count(scenario)? / server_commands::ROUNDS;
        counts.push((format!("server: {}", scenario.name), count));
    }
    let setup = [
        env::consts::ARCH.to_owned(),
        first_line("rustc".into(), "--version")?,
        first_line(server_program(), "--version")?,
        first_line("valgrind".into(), "--version")?,
    ];
    Ok(Baseline { setup, counts })
}

/// Runs this program under callgrind.
fn count_core(scenario: &core_steps::Scenario) -> Result<u64> {
    let callgrind = Callgrind::new(&[scenario.function])?;
    let mut command_line = callgrind.command_line().into_iter();
    let status = Command::new(command_line.next().unwrap_or_default())
        .args(command_line)
        .arg(env::current_exe()?)
        .args([RUN_SCENARIO, scenario.name])
        .status()?;
    if !status.success() {
        return Err(format!("{} under callgrind: {status}", scenario.name).into());
    }
    callgrind.total()
}

fn first_line(program: OsString, arg: &str) -> Result<String> {
    let output = Command::new(&program).arg(arg).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}
