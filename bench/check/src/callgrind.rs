//! Programs under callgrind.

use std::fs;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::Result;

/// A program of which the instructions of some functions are counted, and of all that these call.
pub struct Counted {
    /// What follows are the program and its arguments.
    pub program: Command,
    folder: TempDir,
}

pub fn is_installed() -> bool {
    let version = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// `functions`: names without their arguments, as callgrind shows them. None of them may call another.
pub fn command(functions: &[&str]) -> Result<Counted> {
    let folder = TempDir::with_prefix("dlock-bench-check-")?;
    let mut program = Command::new("valgrind");
    program
        .args(["--quiet", "--tool=callgrind", "--collect-atstart=no"])
        .args(functions.iter().map(|name| format!("--toggle-collect={name}")))
        .arg(format!(
            "--callgrind-out-file={}",
            folder.path().join("counts").display()
        ))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Ok(Counted { program, folder })
}

impl Counted {
    /// The folder of this run, which goes with it.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Runs the program to its end; the number of instructions.
    pub fn run(mut self) -> Result<u64> {
        let status = self.program.status()?;
        if !status.success() {
            return Err(format!("{:?}: {status}", self.program).into());
        }
        self.total()
    }

    /// What a program that has ended left.
    pub fn total(&self) -> Result<u64> {
        let counts = fs::read_to_string(self.folder.path().join("counts"))?;
        let total = counts.lines().find_map(|line| line.strip_prefix("totals: "));
        match total.map(|total| total.trim().parse()) {
            Some(Ok(total @ 1..)) => Ok(total),
            _ => Err(format!(
                "nothing was counted by {:?}: is that program a script, or have the functions other names now?",
                self.program
            )
            .into()),
        }
    }
}
