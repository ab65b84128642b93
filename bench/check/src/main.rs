//! `make bench-check`: has a lock become dearer? Instructions are counted by callgrind and compared with those in
//! `baseline.txt`. Other than times they come out nearly the same whatever else the machine does.
//!
//! Counted are steps of the core, in this program, and the module's commands and callbacks on a real server,
//! with all that these call in the server.

mod baseline;
mod callgrind;
mod steps;
mod wire;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{env, fs};

use baseline::{Baseline, Setup};

/// Whatever ends a run early. It is only ever printed.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const USAGE: &str = "\
dlock-bench-check [--update]

  --update   write the counts of now as the new baseline

environment
  DLOCK_SERVER   the server program, default redis-server
  DLOCK_MODULE   the module, default target/release/libdlock.so

exit code: 0 nothing has become dearer, 1 something has, 2 nothing can be said";

/// How this program calls itself under callgrind.
const STEPS: &str = "steps";

const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/baseline.txt");

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        [] => check(),
        ["--update"] => update(),
        [STEPS, name] => steps::run(name).map(|()| ExitCode::SUCCESS),
        _ => Err(USAGE.into()),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("bench-check: {error}");
        ExitCode::from(2)
    })
}

fn check() -> Result<ExitCode> {
    if !callgrind::is_installed() {
        println!("bench-check: valgrind is not installed, nothing is counted");
        return Ok(ExitCode::SUCCESS);
    }
    let baseline = Baseline::parse(&fs::read_to_string(BASELINE)?)?;
    let now = count()?;
    print!("{}", now.beside(&baseline));
    if let Some(difference) = now.setup.difference_to(&baseline.setup) {
        return Err(format!(
            "{difference}: the counts cannot be compared. Write a baseline of the unchanged code with \
             `make bench-check ARGS=--update`, then count again with your changes"
        )
        .into());
    }
    let dearer = now.dearer_than(&baseline);
    if dearer.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "more than {} % dearer than the baseline: {}. Mend it, or say in the commit why it has to be and write a \
         new baseline with `make bench-check ARGS=--update`",
        baseline::TOLERANCE_PERCENT,
        dearer.join(", ")
    );
    Ok(ExitCode::FAILURE)
}

fn update() -> Result<ExitCode> {
    if !callgrind::is_installed() {
        return Err("valgrind is not installed: there is no baseline without it".into());
    }
    let now = count()?;
    fs::write(BASELINE, now.to_string())?;
    print!("{now}");
    Ok(ExitCode::SUCCESS)
}

fn count() -> Result<Baseline> {
    let program = env::current_exe()?;
    let mut counts = Vec::new();
    for (name, function) in steps::NAMES {
        let mut command = callgrind::command(&[function])?;
        command.program.arg(&program).args([STEPS, name]);
        let total = command.run()?;
        counts.push((format!("core: {name}"), total / steps::ROUNDS));
    }
    let module = module()?;
    for scenario in &wire::SCENARIOS {
        let total = wire::count(&server_program(), &module, scenario)?;
        counts.push((format!("server: {}", scenario.name), total / wire::ROUNDS));
    }
    Ok(Baseline {
        setup: setup()?,
        counts,
    })
}

fn setup() -> Result<Setup> {
    Ok(Setup {
        machine: env::consts::ARCH.to_owned(),
        compiler: first_line("rustc", "--version")?,
        server: first_line(&server_program(), "--version")?,
        valgrind: first_line("valgrind", "--version")?,
    })
}

fn server_program() -> String {
    env::var("DLOCK_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// A release build, which is in the same folder as this program.
fn module() -> Result<PathBuf> {
    let module = match env::var_os("DLOCK_MODULE") {
        Some(path) => PathBuf::from(path),
        None => env::current_exe()?.with_file_name("libdlock.so"),
    };
    module.canonicalize().map_err(|_| {
        let module = module.display();
        format!("no module at {module}: build it with `cargo build --release`, or set DLOCK_MODULE").into()
    })
}

fn first_line(program: &str, arg: &str) -> Result<String> {
    let output = Command::new(program)
        .arg(arg)
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}
