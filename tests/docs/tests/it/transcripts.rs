//! The sessions of redis-cli and shells on the pages show the real output.

use dlock_testkit::{skip, skip_part};

use crate::support::page;
use crate::support::transcript::{redis_cli, replay};
use crate::support::workspace_binary;

#[test]
fn transcripts_typed_in_order_print_the_output_of_the_pages() {
    if redis_cli().is_none() {
        return skip("redis-cli is not installed");
    }
    let has_tool = workspace_binary("dlock").is_some();
    if !has_tool {
        skip_part("blocks with the tool `dlock`: run `cargo build -p dlock-cli` first");
    }
    let (counts, differences): (Vec<usize>, Vec<Vec<String>>) =
        page::all().iter().map(|page| replay(page, has_tool)).unzip();
    let differences = differences.concat();
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    let count: usize = counts.iter().sum();
    assert!(count > 10, "expected more than 10 transcripts, found {count}");
}
