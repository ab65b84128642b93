//! The pictures of `docs/` are those that their script draws today, and `top` prints what its picture shows.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use dlock_testkit::skip;
use tempfile::TempDir;

use crate::support::{is_installed, page, run};

/// The SVG files of a directory, by name.
fn pictures(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).expect("the directory is there");
    let files = entries.map(|entry| entry.expect("an entry").path());
    files
        .filter(|file| file.extension().is_some_and(|kind| kind == "svg"))
        .map(|file| {
            let name = file.file_name().expect("a name").display().to_string();
            (name, fs::read_to_string(&file).expect("text"))
        })
        .collect()
}

#[test]
fn pictures_are_what_the_script_draws() {
    if !is_installed("python3") {
        return skip("python3 is not installed, which draws the pictures");
    }
    let docs = page::root().join("docs");
    let drawn = TempDir::with_prefix("dlock-docs-").expect("a temporary directory can be made");
    let mut script = Command::new("python3");
    script.arg("pictures/draw.py").arg(drawn.path());
    run(&mut script, &docs).expect("the script succeeds");
    for directory in ["pictures", "bench"] {
        let (ours, theirs) = (
            pictures(&docs.join(directory)),
            pictures(&drawn.path().join(directory)),
        );
        assert!(
            ours.keys().eq(theirs.keys()),
            "docs/{directory} has {:?}, the script draws {:?}",
            ours.keys(),
            theirs.keys()
        );
        for (name, picture) in ours {
            assert!(
                picture == theirs[&name],
                "docs/{directory}/{name} is not what its script draws: run `make pictures`"
            );
        }
    }
}

#[test]
fn picture_of_top_has_its_columns() {
    let screens = fs::read_to_string(page::root().join("docs/pictures/top.txt")).expect("text");
    let source = fs::read_to_string(page::root().join("cli/src/top/view.rs")).expect("text");
    let titles = screens.lines().find(|line| line.starts_with("LOCK "));
    let titles = titles.expect("the screen has a list").replace("HELD ", "HELD-");
    for title in titles.split_whitespace().map(|title| title.replace('-', " ")) {
        assert!(
            source.contains(&format!("{title}\"")),
            "top has no column {title}"
        );
    }
}
