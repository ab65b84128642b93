//! Configuration on the pages is accepted by the server, line by line.

use dlock_book::page;
use dlock_testkit::Server;

#[test]
fn the_server_starts_with_each_configuration_of_the_pages_and_has_what_it_says() {
    let mut tried = 0;
    for page in page::all() {
        for block in page.blocks.iter().filter(|block| block.language == "conf") {
            // The page has the path of an installed module, the test that of its own.
            let lines: Vec<&str> = block
                .code
                .lines()
                .filter(|line| !line.starts_with("loadmodule "))
                .collect();
            let server = Server::try_with(&lines.join("\n"))
                .unwrap_or_else(|log| panic!("{}:\n{log}", page.place(block)));
            for (name, value) in lines.iter().filter_map(|line| line.split_once(' ')) {
                assert_eq!(
                    server.client().config(name),
                    value,
                    "{}: {name}",
                    page.place(block)
                );
            }
            tried += 1;
        }
    }
    assert!(tried > 0, "the pages have configurations");
}
