//! The example of README.md is compiled with its documentation, and run here.

#[path = "../../examples/first.rs"]
#[allow(dead_code)]
mod first;

use crate::support::{calls, url};
use dlock_testkit::start;

#[test]
fn readme_contains_the_example() {
    let readme = include_str!("../../README.md");
    let example = include_str!("../../examples/first.rs");
    let (_, code) = example.split_once("\n\n").unwrap();
    assert!(readme.contains(&format!("```rust,no_run\n{code}```")));
}

#[tokio::test]
async fn readme_example_runs() {
    let (server, mut client) = start();
    first::ship(&url(&server)).await.unwrap();
    assert_eq!(
        (
            calls(&mut client, "dlock.acquire"),
            calls(&mut client, "dlock.release")
        ),
        (2, 2)
    );
    assert!(client.find_lock("orders:42").is_none());
}
