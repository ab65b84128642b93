//! `make bench`: what DLOCK costs, beside what it replaces, on servers of its own.
//!
//! Every figure is a ratio, or stands beside a floor, measured in the same run: absolute times say more
//! about the machine than about the module.

mod bench;
mod client;
mod contender;
mod cpu;
mod interrupt;
mod machine;
mod memory;
mod options;
mod plot;
mod print;
mod progress;
mod report;
mod resp;
mod server;
mod spread;
mod sweep;
mod table;
mod waiting;

use std::env;
use std::process::ExitCode;

use bench::{Bench, Work};
use machine::Origin;
use options::Options;
use print::{Verdicts, WorkTable};
use progress::Progress;
use table::Summary;

/// In the order in which they run.
const WORKS: &[Work] = &[
    Work {
        name: "cpu",
        about: "the server's CPU for an uncontended pair, pipelined",
        run: cpu::measure,
    },
    Work {
        name: "memory",
        about: "what a held lock takes in the server's memory",
        run: memory::measure,
    },
    Work {
        name: "sweep",
        about: "what clients notice when very many leases end at once",
        run: sweep::measure,
    },
    Work {
        name: "waiting",
        about: "hand-over, contention, a queue of 10 000",
        run: waiting::measure,
    },
    Work {
        name: "client",
        about: "what the Rust client adds to its commands, beside rslock",
        run: client::measure,
    },
];

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
        progress: Progress::new(works.len()),
    };
    for (name, what) in origin.lines() {
        bench.progress.print(&format!("{name:<9}{what}"));
    }
    let mut summary = Summary::default();
    for work in works {
        summary.begin(work.name);
        bench.progress.work(work.name);
        (work.run)(&bench, &mut summary)?;
        let table = WorkTable {
            summary: &summary,
            work: work.name,
        };
        bench
            .progress
            .print(&format!("\n{}: {}\n{table}", work.name, work.about));
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
