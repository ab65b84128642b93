//! `make bench`: what DLOCK costs, beside what it replaces, on servers of its own.
//!
//! Every figure is a ratio, or stands beside a floor, measured in the same run: absolute times say more
//! about the machine than about the module.

mod bench;
mod contender;
mod cpu;
mod interrupt;
mod machine;
mod memory;
mod options;
mod resp;
mod server;
mod spread;
mod sweep;
mod table;
mod waiting;

use std::process::ExitCode;

use bench::{Bench, Work};
use options::Options;
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
    let Some(options) = Options::parse(std::env::args().skip(1), WORKS)? else {
        println!("{}", options::usage(WORKS));
        return Ok(ExitCode::SUCCESS);
    };
    interrupt::listen()?;
    let bench = Bench {
        module: server::module()?,
        quick: options.quick,
    };
    println!("server   {}", server::version()?);
    println!("module   {}", bench.module.display());
    println!("machine  {}", machine::describe());

    let mut summary = Summary::default();
    for work in WORKS.iter().filter(|work| options.wants(work)) {
        (work.run)(&bench, &mut summary)?;
    }
    println!("\n{summary}");

    let failed = options.check && summary.missed();
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
