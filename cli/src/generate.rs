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
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dlock", &mut text);
    if shell == Shell::Bash {
        text.extend_from_slice(include_bytes!("lock_names.bash"));
    }
    io::stdout().write_all(&text)?;
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
