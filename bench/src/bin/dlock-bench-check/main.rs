//! `make bench-check`: counts the instructions of the module's commands on a real server with callgrind, and compares
//! them with `bench/baseline.txt`. Unlike times, counts hardly depend on what else the machine does.
//!
//! gungraun would count functions of this project, but not commands of a server, and it has no committed baseline.

mod baseline;
mod callgrind;
mod commands;
mod error;

use std::process::{Command, ExitCode};
use std::{env, fs};

use baseline::Baseline;
use error::Result;

const USAGE: &str = "\
dlock-bench-check [--update]

  --update   write the current counts as the new baseline

environment
  CI             if set, it is an error that valgrind is not installed
  DLOCK_SERVER   server program, default redis-server
  DLOCK_MODULE   module, default target/release/libdlock.so

exit code: 0 no regression, 1 regression, 2 could not compare";

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.txt");

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let outcome = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => check(),
        ["--update"] => update(),
        _ => Err(USAGE.into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("bench-check: {error}");
        ExitCode::from(2)
    })
}

fn check() -> Result<ExitCode> {
    let not_installed =
        "valgrind is not installed, instructions were NOT counted (Debian: apt-get install valgrind)";
    if first_line("valgrind").is_err() {
        // In CI, a skipped check would look like a passed one.
        return match env::var_os("CI") {
            Some(_) => Err(not_installed.into()),
            None => {
                println!("bench-check: {not_installed}");
                Ok(ExitCode::SUCCESS)
            }
        };
    }
    let baseline = Baseline::parse(&fs::read_to_string(BASELINE)?)?;
    let current = count()?;
    print!("{}", current.table(&baseline));
    if current.setup != baseline.setup {
        let advice = "Write a baseline of the unchanged code with `make bench-check ARGS=--update`, then count again with your changes";
        return Err(format!(
            "`{}` and, in the baseline, `{}`: the counts are not comparable. {advice}",
            current.setup, baseline.setup
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
    let (server, rust, valgrind) = (
        first_line(&commands::server_program())?,
        first_line("rustc")?,
        first_line("valgrind")?,
    );
    let mut counts = Vec::new();
    for (name, run) in commands::SCENARIOS {
        counts.push((name.to_owned(), commands::count(run)? / commands::ROUNDS));
    }
    let setup = format!("{}, {rust}, {server}, {valgrind}", env::consts::ARCH);
    Ok(Baseline { setup, counts })
}

/// What a program says of its version.
fn first_line(program: &str) -> Result<String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}
