//! Shared by the tests of this package.

pub mod imports;
pub mod output_match;
pub mod page;
pub mod transcript;

use std::path::PathBuf;

pub use dlock_testkit::{client_libraries, is_installed, run};

/// The port on the pages. Tests replace it with the port of their server.
pub const SHOWN_PORT: &str = "7379";

/// A binary of this workspace, if it is built; `make test` builds it.
pub fn workspace_binary(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("a program knows its own path");
    let program = test.ancestors().nth(2)?.join(name);
    program.exists().then_some(program)
}
