//! `make book` builds every chapter without a warning.

use std::fs;
use std::path::Path;
use std::process::Command;

use dlock_testkit::skip;

use crate::support::page;
use crate::support::{is_installed, target};

#[test]
fn book_builds_without_warnings_or_dead_links() {
    if !target().join("tools/bin/mdbook").exists() && !is_installed("mdbook") {
        return skip("mdBook is not installed: run `make book` once");
    }
    if !is_installed("python3") {
        return skip("python3 is not installed, which collects the pages");
    }
    let mut build = Command::new(page::root().join("tests/docs/build-book"));
    let output = build.arg(target()).output().expect("the script can be run");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    let book = target().join("book/html");
    assert_eq!(dead_links(&book), Vec::<String>::new());
}

/// Links of the pages in a directory, and below it, to files that are not there.
fn dead_links(directory: &Path) -> Vec<String> {
    let mut dead = Vec::new();
    for entry in fs::read_dir(directory).expect("the book is there").flatten() {
        let file = entry.path();
        if file.is_dir() {
            dead.extend(dead_links(&file));
        }
        // The page for addresses that do not exist has absolute links.
        let is_page = file.extension().is_some_and(|kind| kind == "html") && !file.ends_with("404.html");
        if !is_page {
            continue;
        }
        let html = fs::read_to_string(&file).expect("text");
        for target in html
            .split("href=\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
        {
            let path = target.split('#').next().unwrap_or_default();
            let is_local = !path.is_empty() && !path.contains(':');
            if is_local && !directory.join(path).exists() {
                dead.push(format!("{}: {target}", file.display()));
            }
        }
    }
    dead
}
