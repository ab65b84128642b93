//! `dlock`: run commands under distributed locks, inspect locks, check servers.

mod args;
mod break_lock;
mod doctor;
mod drill;
mod duration;
mod exit;
mod generate;
mod jobctl;
mod lock;
mod ls;
mod output;
mod run;
mod scan;
mod server;
mod show;
mod stats;
mod table;
mod text;
mod top;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Action, Cli};
use crate::exit::{Code, Failure};
use crate::output::eprint_error;
use crate::server::Target;

fn main() -> ExitCode {
    if let Some(exit) = jobctl::exec_if_helper() {
        return exit;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return print_usage(&error),
    };
    dispatch(&cli).unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            eprint_error(&failure.message);
        }
        failure.code.into()
    })
}

fn dispatch(cli: &Cli) -> Result<ExitCode, Failure> {
    let target = || Target::new(&cli.server);
    match &cli.action {
        Action::Run(args) => run::run(args, &cli.server),
        Action::Ls(args) => ls::ls(args, &target()?),
        Action::Show(args) => show::show(args, &target()?),
        Action::Break(args) => break_lock::break_lock(args, &target()?),
        Action::Doctor(args) if !args.quorum.is_empty() => {
            doctor::quorum(args, &Target::quorum(&cli.server, &args.quorum)?)
        }
        Action::Doctor(args) => doctor::doctor(args, &target()?),
        Action::Drill(args) => drill::drill(args, &cli.server),
        Action::Stats(args) => stats::stats(args, &target()?),
        Action::Completions { shell } => generate::completions(*shell),
        Action::Man { directory } => generate::man_pages(directory),
        Action::Top(args) => top::top(args, &target()?),
    }
}

/// Prints help, version or a usage error.
fn print_usage(error: &clap::Error) -> ExitCode {
    // If this cannot be written, there is nowhere to report it.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => Code::Usage.into(),
    }
}
