//! `make bench`: what DLOCK costs, beside the plain commands, in the settings that users run.
//!
//! Workloads add rows to results.csv. Whatever a page says of speed is computed from that file.

mod error;
mod interrupt;
mod locks;
mod machine;
mod pages;
mod results;
mod scale;
mod server;
mod stats;
mod targets;
mod wire;
mod workloads;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use clap::builder::PossibleValue;
use error::Result;
use results::Results;
use scale::Scale;
use targets::TARGETS;
use workloads::{WORKLOADS, Workload};

/// What DLOCK costs, beside the plain commands.
#[derive(Parser)]
#[command(after_help = "\
environment:
  DLOCK_SERVER   server program, default redis-server
  DLOCK_MODULE   module, default target/release/libdlock.so")]
struct Options {
    /// Less of everything, about two minutes
    #[arg(long)]
    quick: bool,
    /// As little as possible, to test the benchmarks themselves
    #[arg(long, hide = true, conflicts_with = "quick")]
    smoke: bool,
    /// Run this workload only; can be repeated
    #[arg(long, value_name = "WORKLOAD", value_parser = names())]
    only: Vec<String>,
    /// Where to write the results: those of workloads that do not run are kept
    #[arg(long, value_name = "FILE", default_value = "target/bench/results.csv")]
    csv: PathBuf,
    /// Write docs/bench/results.csv instead, and the tables of the pages
    #[arg(long)]
    publish: bool,
    /// Measure nothing: write the tables of the pages from docs/bench/results.csv
    #[arg(long)]
    render: bool,
}

fn names() -> Vec<PossibleValue> {
    let value = |workload: &Workload| PossibleValue::new(workload.name).help(workload.about);
    WORKLOADS.iter().map(value).collect()
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dlock-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let options = Options::parse();
    interrupt::install_handlers()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let published = root.join("docs/bench/results.csv");
    if options.render {
        return pages::fill_in(&root, &Results::read(&published)?);
    }
    let measured = measure(&options)?;
    println!("\n{}", pages::targets(&measured));
    let file = if options.publish { &published } else { &options.csv };
    let mut results = if file.exists() {
        Results::read(file)?
    } else {
        Results::default()
    };
    results.replace(measured);
    std::fs::create_dir_all(file.parent().ok_or("the file of the results has no directory")?)?;
    results.write(file)?;
    println!("The results are in {}", file.display());
    if options.publish {
        pages::fill_in(&root, &results)?;
    }
    Ok(())
}

fn measure(options: &Options) -> Result<Results> {
    let scale = match options {
        Options { smoke: true, .. } => Scale::Smoke,
        Options { quick: true, .. } => Scale::Quick,
        _ => Scale::Full,
    };
    let (mut results, environment) = (Results::default(), machine::environment()?);
    for workload in &WORKLOADS {
        if options.only.is_empty() || options.only.iter().any(|name| name == workload.name) {
            println!("{}: {}", workload.name, workload.about);
            one_workload(workload, scale, &environment, &mut results)?;
        }
    }
    Ok(results)
}

fn one_workload(workload: &Workload, scale: Scale, environment: &str, results: &mut Results) -> Result<()> {
    let (start, stolen, first) = (Instant::now(), machine::stolen_seconds(), results.rows.len());
    (workload.run)(scale, results).map_err(|error| format!("{}: {error}", workload.name))?;
    let stolen = (machine::stolen_seconds() - stolen) / start.elapsed().as_secs_f64() * 100.0;
    println!(
        "  {:.0?}; the hypervisor withheld {stolen:.1} % of a core",
        start.elapsed()
    );
    for row in results.rows.iter_mut().skip(first) {
        row.workload = workload.name.into();
    }
    if let Some(row) = results
        .rows
        .iter()
        .skip(first)
        .find(|row| !row.value.is_finite() || row.value < 0.0)
    {
        return Err(format!("no figure: {row:?}").into());
    }
    if results.rows.len() > first {
        let environment = format!("{environment}; {stolen:.1} %");
        results.environments.insert(workload.name.into(), environment);
        let mut targets = TARGETS.iter().filter(|target| target.workload == workload.name);
        if let Some(target) = targets.find(|target| target.outcome(results).is_none()) {
            return Err(format!(
                "{}: nothing was measured for the target \"{}\"",
                workload.name, target.what
            )
            .into());
        }
    }
    Ok(())
}
