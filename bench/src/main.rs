//! `make bench`: what DLOCK costs, compared with other locks on the same machine.
//!
//! Every figure is a ratio, or comes with a lower bound from the same run: absolute times say more about the machine
//! than about the module.

mod cores;
mod environment;
mod error;
mod implementations;
mod interrupt;
mod interruptible_stream;
mod options;
mod resp;
mod results;
mod server;
mod steal;
mod workloads;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use environment::Environment;
use error::Result;
use options::Options;
use results::print::{TargetTable, WorkloadTable};
use results::progress::Progress;
use results::report;
use results::table::Summary;
use steal::WaitBudget;
use workloads::{Bench, WORKLOADS};

/// How long a run waits for neighbours on the machine to leave it alone, in all.
const MAX_WAIT: Duration = Duration::from_secs(10 * 60);

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("dlock-bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode> {
    let options = Options::parse();
    interrupt::install_handlers()?;
    if options.quorum_process {
        workloads::serve_quorum()?;
        return Ok(ExitCode::SUCCESS);
    }
    let module = environment::with_commit(server::module_version()?);
    let environment = Environment::detect(server::version()?, module);
    let summary = measure(&options, &environment)?;
    println!("\n{}", TargetTable(&summary));

    let directory = match &options.out {
        Some(directory) => directory.clone(),
        None => default_directory()?,
    };
    report::write(&directory, &environment, &summary)?;
    println!("\nresults.csv and the plots are in {}", directory.display());

    Ok(ExitCode::from(u8::from(
        options.check && summary.has_missed_target(),
    )))
}

fn measure(options: &Options, environment: &Environment) -> Result<Summary> {
    let workloads = WORKLOADS.iter().filter(|workload| options.selects(workload));
    let workloads: Vec<_> = workloads.collect();
    let bench = Bench {
        quick: options.quick,
        servers: options.servers.clone(),
        progress: Progress::new(workloads.len()),
        wait_budget: WaitBudget::new(MAX_WAIT),
    };
    for (name, value) in environment.rows() {
        bench.progress.print(&format!("{name:<9}{value}"));
    }
    let mut summary = Summary::default();
    for workload in workloads {
        summary.begin(workload.name);
        bench.progress.workload(workload.name);
        let start = Instant::now();
        (workload.run)(&bench, &mut summary)?;
        let table = WorkloadTable {
            summary: &summary,
            workload: workload.name,
        };
        bench.progress.print(&format!(
            "\n{}: {} ({:.0?})\n{table}",
            workload.name,
            workload.about,
            start.elapsed()
        ));
        bench.progress.workload_done();
    }
    bench.progress.finish();
    Ok(summary)
}

/// `target/bench`; this program is in `target/<profile>/`.
fn default_directory() -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(2);
    Ok(target
        .ok_or("this program is not in a target directory, use --out")?
        .join("bench"))
}
