//! `make bench`: what DLOCK costs, beside what it replaces, on servers of its own.
//!
//! Every figure is a ratio, or stands beside a floor, measured in the same run: absolute times say more
//! about the machine than about the module.

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

use options::Options;
use table::Summary;

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
    let Some(options) = Options::from_args()? else {
        println!("{}", options::USAGE);
        return Ok(ExitCode::SUCCESS);
    };
    interrupt::listen()?;
    let module = server::module()?;
    println!("server   {}", server::version()?);
    println!("module   {}", module.display());
    println!("machine  {}", machine::describe());

    let mut summary = Summary::default();
    cpu::measure(&module, options.cpu_rounds, &mut summary)?;
    memory::measure(&module, &mut summary)?;
    sweep::measure(&module, options.sweep_rounds, &mut summary)?;
    waiting::measure(&module, options.waiting_rounds, &mut summary)?;
    println!("\n{summary}");

    let failed = options.check && summary.missed();
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
