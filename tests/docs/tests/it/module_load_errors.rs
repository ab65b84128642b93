//! The load errors in `operations.md` are what the server prints.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use dlock_testkit::{Server, module_path};
use tempfile::TempDir;

use crate::support::page;

/// The first column of the page's table of load errors.
fn documented_errors() -> Vec<String> {
    let text = fs::read_to_string(page::root().join("docs/operations.md")).expect("the page is there");
    let (_, section) = text
        .split_once("### The module does not load")
        .expect("the page has the section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once("` |")?.0.to_owned()))
        .collect()
}

/// The log of a server that cannot load this module.
fn load_error(module: &Path) -> String {
    let started = Server::try_with(&format!("loadmodule {}", module.display()));
    started
        .err()
        .expect("a server exits when it cannot load a module")
}

#[test]
fn missing_or_non_executable_module_fails_with_the_documented_error() {
    let directory = TempDir::with_prefix("dlock-docs-").expect("a temporary directory can be made");
    let (plain, missing) = (
        directory.path().join("plain.so"),
        directory.path().join("missing.so"),
    );
    fs::copy(module_path(), &plain).expect("the directory is writable");
    fs::set_permissions(&plain, Permissions::from_mode(0o644)).expect("the owner may change the mode");
    let errors = documented_errors();
    for (module, keyword) in [(plain, "permissions"), (missing, "No such file")] {
        let documented = errors.iter().find(|error| error.contains(keyword));
        let documented = documented.unwrap_or_else(|| panic!("the page has no error with {keyword:?}"));
        let log = load_error(&module);
        let is_expected = log.contains(documented.as_str());
        assert!(is_expected, "the page says {documented:?}, the server:\n{log}");
    }
}
