//! `dlock`: runs commands under distributed locks, looks at locks, checks servers.

mod args;
mod break_lock;
mod doctor;
mod exit;
mod lock;
mod ls;
mod pages;
mod run;
mod scan;
mod server;
mod show;
mod span;
mod stats;
mod table;
mod text;
mod top;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::args::{Action, Cli};
use crate::exit::{Code, Failure};
use crate::server::Target;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    act(&cli).unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            complain(&failure.message);
        }
        failure.code.into()
    })
}

fn act(cli: &Cli) -> Result<ExitCode, Failure> {
    let target = || Target::new(&cli.server);
    match &cli.action {
        Action::Run(args) => run::run(args, &target()?),
        Action::Ls(args) => ls::ls(args, &target()?),
        Action::Show(args) => show::show(args, &target()?),
        Action::Break(args) => break_lock::break_lock(args, &target()?),
        Action::Doctor(args) => doctor::doctor(args, &target()?),
        Action::Stats(args) => stats::stats(args, &target()?),
        Action::Completions { shell } => pages::completions(*shell),
        Action::Man { folder } => pages::man(folder),
        Action::Top(args) => top::top(args, &target()?),
    }
}

/// Help and version are no errors.
fn usage(error: &clap::Error) -> ExitCode {
    // An output that has gone cannot be told so.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => Code::Usage.into(),
    }
}

/// Tells the user on the standard error, as one piece.
pub fn complain(what: &str) {
    let _ = io::stderr().write_all(format!("dlock: {what}\n").as_bytes());
}
