//! What the tests of the book share.

pub mod clients;
pub mod pattern;
pub mod postgres;
pub mod store;
pub mod transcript;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The address in the pages, instead of which a test has a port of its own.
pub const SHOWN_PORT: &str = "7379";

/// The folder that cargo builds into.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows its own path");
    let folder = program.ancestors().nth(3);
    folder
        .expect("tests are in <target>/<profile>/deps/")
        .to_path_buf()
}

/// A program of this workspace, if cargo has built it: `make test` does.
pub fn own_program(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("a program knows its own path");
    let program = test.ancestors().nth(2)?.join(name);
    program.exists().then_some(program)
}

/// Whether a program is there.
pub fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Whether a program does its work in a folder; if not, what it says.
pub fn run(command: &mut Command, folder: &Path) -> Result<String, String> {
    let output = command.current_dir(folder).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}\n{said}{errors}", output.status))
}
