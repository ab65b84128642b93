//! mdBook builds the book without a warning, and every chapter is in it.

use std::fs;
use std::path::Path;
use std::process::Command;

use dlock_book::page::{self, Page};
use tempfile::TempDir;

use crate::support::{is_there, target};

#[test]
fn mdbook_builds_all_chapters_without_a_warning_and_no_link_leaves_the_book() {
    let own = target().join("tools/bin/mdbook");
    let program = if own.exists() {
        own
    } else if is_there("mdbook") {
        "mdbook".into()
    } else {
        println!("skipped: there is no mdBook: `make book` installs it");
        return;
    };
    let folder = TempDir::with_prefix("dlock-book-").expect("a temporary folder can be made");
    let output = Command::new(program)
        .args(["build", "docs", "--dest-dir"])
        .arg(folder.path())
        .current_dir(page::root())
        .output()
        .expect("mdBook can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
    for link in Page::read(Path::new("docs/SUMMARY.md")).links {
        let file = match link.target.strip_suffix("README.md") {
            Some(above) => format!("{above}index.html"),
            None => link.target.replace(".md", ".html"),
        };
        let html =
            fs::read_to_string(folder.path().join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let depth = file.matches('/').count();
        let outside = format!("href=\"{}", "../".repeat(depth + 1));
        assert!(!html.contains(&outside), "{file} has a link that leaves the book");
    }
}
