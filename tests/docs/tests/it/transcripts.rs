//! The sessions of redis-cli and shells on the pages show the real output.

use dlock_testkit::skip;

use crate::support::page;
use crate::support::transcript::{Session, is_transcript, redis_cli};
use crate::support::workspace_binary;

#[test]
fn transcripts_replayed_in_order_print_the_output_of_the_pages() {
    if redis_cli().is_none() {
        return skip("redis-cli is not installed");
    }
    let has_tool = workspace_binary("dlock").is_some();
    if !has_tool {
        skip("blocks with the tool `dlock`: run `cargo build -p dlock-cli` first");
    }
    let mut count = 0;
    let mut differences = Vec::new();
    for page in page::all() {
        let mut session = None;
        for block in page.blocks.iter().filter(|block| is_transcript(block)) {
            if block.language == "console" && !has_tool {
                continue;
            }
            let session = session.get_or_insert_with(Session::start);
            let found = session.differences(block);
            differences.extend(found.iter().map(|text| format!("{}: {text}", page.place(block))));
            count += 1;
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    assert!(
        count > 10,
        "expected more than 10 transcripts in docs/, found {count}"
    );
}
