use std::path::{Path, PathBuf};
use std::process::Command;

/// Cargo's target directory.
pub fn target() -> PathBuf {
    let program = std::env::current_exe().expect("a program knows its own path");
    let directory = program.ancestors().nth(3);
    directory
        .expect("tests are in <target>/<profile>/deps/")
        .to_path_buf()
}

/// Whether a program is in PATH.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).exists())
}

/// Runs a program in a directory: its output, or an error with all it printed.
pub fn run(command: &mut Command, directory: &Path) -> Result<String, String> {
    let output = command.current_dir(directory).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?}: {}\n{stdout}{stderr}", output.status))
}
