//! `make bench`: what DLOCK costs, beside what it replaces, on servers of its own.
//!
//! Every figure is a ratio, or stands beside a floor, measured in the same run: absolute times say more
//! about the machine than about the module.

mod aof;
mod bench;
mod client;
mod cluster;
mod contender;
mod contenders;
mod contention;
mod cpu;
mod expiry;
mod handover;
mod interrupt;
mod machine;
mod memory;
mod million;
mod options;
mod pairs;
mod patient;
mod plot;
mod print;
mod progress;
mod queue;
mod redlock;
mod replica;
mod report;
mod resp;
mod server;
mod servers;
mod shared;
mod spread;
mod table;
#[cfg(test)]
mod testing;

use std::env;
use std::process::ExitCode;
use std::time::Instant;

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
        about: "what a lock costs that nobody else wants",
        run: cpu::measure,
    },
    Work {
        name: "memory",
        about: "what a held lock takes in the server's memory",
        run: memory::measure,
    },
    Work {
        name: "million",
        about: "a million held locks: memory, snapshots, and what clients notice when all end at once",
        run: million::measure,
    },
    Work {
        name: "aof",
        about: "an uncontended pair that the server logs, everysec and always",
        run: aof::measure,
    },
    Work {
        name: "replica",
        about: "an uncontended pair on a server with a replica",
        run: replica::measure,
    },
    Work {
        name: "cluster",
        about: "uncontended pairs on a cluster of 1, 2 and 3 primaries",
        run: cluster::measure,
    },
    Work {
        name: "redlock",
        about: "a lock on five servers, one of them slow, dead or silent",
        run: redlock::measure,
    },
    Work {
        name: "servers",
        about: "an uncontended pair and memory on each server of the test matrix",
        run: servers::measure,
    },
    Work {
        name: "hand-over",
        about: "from a release until the next client has the lock",
        run: handover::measure,
    },
    Work {
        name: "contention",
        about: "a lock that 2 to 256 clients want",
        run: contention::measure,
    },
    Work {
        name: "expiry",
        about: "from the end of a vanished holder's lease to the next grant",
        run: expiry::measure,
    },
    Work {
        name: "shared",
        about: "readers and writers, and semaphores",
        run: shared::measure,
    },
    Work {
        name: "queue",
        about: "ten thousand clients that wait for one lock",
        run: queue::measure,
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
