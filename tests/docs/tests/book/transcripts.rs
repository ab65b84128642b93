//! What the pages show of redis-cli and of shells is what happens.

use crate::support::own_program;
use crate::support::transcript::{Session, is_transcript, redis_cli};
use dlock_book::page;

#[test]
fn whoever_types_what_the_pages_show_sees_what_they_show() {
    if redis_cli().is_none() {
        println!("skipped: there is no redis-cli");
        return;
    }
    let has_tool = own_program("dlock").is_some();
    if !has_tool {
        println!("in part: without the program `dlock` (cargo build -p dlock-cli), its blocks are not tried");
    }
    let mut tried = 0;
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
            tried += 1;
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    assert!(tried > 10, "the pages have transcripts, and {tried} were found");
}
