//! What `operations.md` says of a module that does not load is what the server says.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use dlock_book::page;
use dlock_testkit::{Server, module_path};
use tempfile::TempDir;

/// The first cells of the page's table, without backticks.
fn words_of_the_page() -> Vec<String> {
    let text = fs::read_to_string(page::root().join("docs/operations.md")).expect("the page is there");
    let (_, section) = text
        .split_once("### The module does not load")
        .expect("the page has it");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once("` |")?.0.to_owned()))
        .collect()
}

/// What the server says when it cannot load that file.
fn said_of(module: &Path) -> String {
    let started = Server::try_with(&format!("loadmodule {}", module.display()));
    started.err().expect("a server ends that cannot load a module")
}

#[test]
fn a_module_that_is_not_executable_or_not_there_is_told_as_on_the_page() {
    let folder = TempDir::with_prefix("dlock-book-").expect("a temporary folder can be made");
    let (plain, missing) = (folder.path().join("plain.so"), folder.path().join("missing.so"));
    fs::copy(module_path(), &plain).expect("the folder is writable");
    fs::set_permissions(&plain, Permissions::from_mode(0o644)).expect("its owner may do that");
    let words = words_of_the_page();
    for (module, word) in [(plain, "permissions"), (missing, "No such file")] {
        let words = words.iter().find(|words| words.contains(word));
        let words = words.unwrap_or_else(|| panic!("the page has nothing of {word}"));
        let said = said_of(&module);
        assert!(said.contains(words.as_str()), "the page has {words:?}:\n{said}");
    }
}
