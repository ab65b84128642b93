//! Lines for a shell that build and install are not run. They are at least lines of a shell, with programs and
//! targets of `make` that there are.

use std::process::Command;

use dlock_book::page;

use crate::support::run;

#[test]
fn lines_for_a_shell_are_well_formed_and_name_targets_that_there_are() {
    let makefile = std::fs::read_to_string(page::root().join("Makefile")).expect("there is a Makefile");
    for page in page::all() {
        for block in page.blocks.iter().filter(|block| block.language == "sh") {
            let place = page.place(block);
            let mut bash = Command::new("bash");
            let checked = run(bash.args(["-n", "-c", &block.code]), &page::root());
            checked.unwrap_or_else(|error| panic!("{place}: {error}"));
            let lines = block.code.lines().filter_map(|line| line.strip_prefix("make "));
            for target in lines.filter_map(|line| line.split_whitespace().next()) {
                let rule = format!("\n{target}:");
                assert!(makefile.contains(&rule), "{place}: there is no `make {target}`");
            }
        }
    }
}
