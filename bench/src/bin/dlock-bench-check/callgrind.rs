//! Counts instructions with valgrind's callgrind.

use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::error::Result;

/// One run of callgrind. The directory with its output is removed when dropped.
pub struct Callgrind {
    directory: TempDir,
    functions: Vec<String>,
}

pub fn is_installed() -> bool {
    let mut version = Command::new("valgrind");
    let version = version.arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

impl Callgrind {
    /// Counts these functions, including their callees. The names are without arguments, as callgrind prints them. None
    /// of the functions may call another.
    pub fn new(functions: &[&str]) -> Result<Self> {
        Ok(Self {
            directory: TempDir::with_prefix("dlock-bench-check-")?,
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
        })
    }

    /// Precedes the program to run and its arguments.
    pub fn command_line(&self) -> Vec<OsString> {
        let output = self.directory.path().join("counts");
        let options = [
            "valgrind".into(),
            "--quiet".into(),
            "--tool=callgrind".into(),
            "--collect-atstart=no".into(),
            format!("--callgrind-out-file={}", output.display()),
        ];
        let functions = self.functions.iter();
        let functions = functions.map(|name| format!("--toggle-collect={name}"));
        options.into_iter().chain(functions).map(OsString::from).collect()
    }

    /// The number of instructions, once the program has exited.
    pub fn total(&self) -> Result<u64> {
        let counts = fs::read_to_string(self.directory.path().join("counts"))?;
        let total = counts.lines().find_map(|line| line.strip_prefix("totals: "));
        match total.map(|total| total.trim().parse()) {
            Some(Ok(total @ 1..)) => Ok(total),
            _ => Err(format!(
                "callgrind has counted nothing: is the program a script, or have the functions {} been renamed?",
                self.functions.join(", ")
            )
            .into()),
        }
    }
}
