//! The server accepts every configuration block of the pages.

use dlock_testkit::Server;

use crate::support::page;

#[test]
fn server_starts_with_each_config_block_and_reports_its_values() {
    let mut count = 0;
    for page in page::all() {
        for block in page.blocks.iter().filter(|block| block.language == "conf") {
            // The test loads its own build, not the installed module that the page names.
            let lines = block.code.lines().filter(|line| !line.starts_with("loadmodule "));
            let lines: Vec<&str> = lines.collect();
            let place = page.place(block);
            let server = Server::try_with(&lines.join("\n")).unwrap_or_else(|log| panic!("{place}:\n{log}"));
            for (name, value) in lines.iter().filter_map(|line| line.split_once(' ')) {
                assert_eq!(server.client().config(name), value, "{place}: {name}");
            }
            count += 1;
        }
    }
    assert!(count > 0, "no configuration block found in docs/");
}
