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
        Shell::Zsh => text = zsh_with_lock_names(&text),
        _ => {}
    }
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The arguments of zsh's script name the function that completes each.
fn zsh_with_lock_names(script: &str) -> String {
    const END: &str = "if [ \"$funcstack[1]\" = ";
    let functions = format!("{}{END}", include_str!("lock_names.zsh"));
    script
        .replace("Name of the lock:_default", "Name of the lock:_dlock_lock_names")
        .replace(END, &functions)
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
