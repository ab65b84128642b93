//! Generates completions and man pages from the command line definition.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::{Code, Failure};

pub fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dlock", &mut script);
    let mut text = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => text += include_str!("lock_names.bash"),
        Shell::Fish => text += include_str!("lock_names.fish"),
        _ => {}
    }
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

pub fn man_pages(directory: &Path) -> Result<ExitCode, Failure> {
    let written = fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), directory));
    written.map_err(|error| {
        let message = format!("cannot write to {}: {error}", directory.display());
        Failure::new(Code::IoError, message)
    })?;
    Ok(ExitCode::SUCCESS)
}
