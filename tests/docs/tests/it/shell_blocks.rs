//! Shell blocks that build and install are not run. They must parse, and name existing `make` targets.

use std::process::Command;

use crate::support::page;
use crate::support::run;

#[test]
fn shell_blocks_parse_and_name_existing_make_targets() {
    let makefile = std::fs::read_to_string(page::root().join("Makefile")).expect("there is a Makefile");
    for page in page::all() {
        for block in page.blocks.iter().filter(|block| block.language == "sh") {
            let place = page.place(block);
            let mut bash = Command::new("bash");
            let checked = run(bash.args(["-n", "-c", &block.code]), &page::root());
            checked.unwrap_or_else(|error| panic!("{place}: {error}"));
            let commands = block.code.lines().filter_map(|line| line.strip_prefix("make "));
            for target in commands.filter_map(|line| line.split_whitespace().next()) {
                let rule = format!("\n{target}:");
                assert!(makefile.contains(&rule), "{place}: there is no `make {target}`");
            }
        }
    }
}
