//! Counts instructions with valgrind's callgrind.

use std::fs;

use tempfile::TempDir;

use crate::error::Result;

/// One run. The directory with its output is removed when dropped.
pub struct Callgrind(TempDir);

impl Callgrind {
    pub fn new() -> Result<Self> {
        Ok(Self(TempDir::with_prefix("dlock-bench-check-")?))
    }

    /// Precedes the program to run. Counts these functions, including their callees: none of them may call another.
    pub fn command_line(&self, functions: &[&str]) -> Vec<String> {
        let output = format!("--callgrind-out-file={}", self.0.path().join("counts").display());
        let options = [
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            "--collect-atstart=no",
            &output,
        ];
        let functions = functions.iter().map(|name| format!("--toggle-collect={name}"));
        options.into_iter().map(str::to_owned).chain(functions).collect()
    }

    /// The number of instructions, once the program has exited.
    pub fn total(&self) -> Result<u64> {
        let counts = fs::read_to_string(self.0.path().join("counts"))?;
        let total = counts.lines().find_map(|line| line.strip_prefix("totals: "));
        match total.map(|total| total.trim().parse()) {
            Some(Ok(total @ 1..)) => Ok(total),
            _ => Err(
                "callgrind has counted nothing: is the server a script, or has a function been renamed?"
                    .into(),
            ),
        }
    }
}
