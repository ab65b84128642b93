//! `make bench`: what DLOCK costs, beside what it replaces, on servers of its own.
//!
//! Every figure is a ratio, or stands beside a floor, measured in the same run: absolute times say more
//! about the machine than about the module.

mod contenders;
mod cores;
mod interrupt;
mod machine;
mod options;
mod patient;
mod resp;
mod results;
mod server;
mod works;

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use machine::Origin;
use options::Options;
use results::print::{Verdicts, WorkTable};
use results::progress::Progress;
use results::report;
use results::table::Summary;
use works::{Bench, WORKS};

/// Whatever ends a run early. It is only ever printed.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

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
    let Some(options) = Options::parse(env::args().skip(1), WORKS)? else {
        println!("{}", options::usage(WORKS));
        return Ok(ExitCode::SUCCESS);
    };
    interrupt::listen()?;
    let module = server::module()?;
    let origin = Origin::here(
        server::version()?,
        machine::with_commit(server::module_version(&module)?),
    );
    let works: Vec<_> = WORKS.iter().filter(|work| options.wants(work)).collect();
    let bench = Bench {
        module,
        quick: options.quick,
        servers: options.servers.clone(),
        progress: Progress::new(works.len()),
    };
    for (name, what) in origin.lines() {
        bench.progress.print(&format!("{name:<9}{what}"));
    }
    let mut summary = Summary::default();
    for work in works {
        summary.begin(work.name);
        bench.progress.work(work.name);
        let start = Instant::now();
        (work.run)(&bench, &mut summary)?;
        let table = WorkTable {
            summary: &summary,
            work: work.name,
        };
        bench.progress.print(&format!(
            "\n{}: {} ({:.0?})\n{table}",
            work.name,
            work.about,
            start.elapsed()
        ));
        bench.progress.work_done();
    }
    bench.progress.finish();
    println!("\n{}", Verdicts(&summary));

    let folder = match &options.out {
        Some(folder) => folder.clone(),
        None => server::target_folder()?.join("bench"),
    };
    report::write(&folder, &origin, &summary)?;
    println!("\nresults and plots are in {}", folder.display());

    let failed = options.check && summary.missed();
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
