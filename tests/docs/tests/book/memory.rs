//! The bytes of a lock that `operations.md` plans with.

use std::path::Path;

use dlock_book::page;
use dlock_testkit::{Client, Server};

const LOCKS: usize = 20_000;
/// Allocators differ, and so do versions of the server: by so much a measurement may be off the page.
const TOLERANCE_PERCENT: usize = 25;

/// A row of the table: lengths, and what a lock takes.
struct Row {
    key: usize,
    owner: usize,
    request: usize,
    bytes: usize,
}

fn rows() -> Vec<Row> {
    let path = page::root().join(Path::new("docs/operations.md"));
    let text = std::fs::read_to_string(path).expect("the page is there");
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with("| key | owner | REQID |"));
    let table = lines.skip(2).take_while(|line| line.starts_with('|'));
    let rows = table.map(|line| {
        let cell = |number| line.split('|').nth(number).map_or("", str::trim);
        let length = |number| cell(number).parse().unwrap_or(0);
        Row {
            key: length(1),
            owner: length(2),
            request: length(3),
            bytes: length(4),
        }
    });
    rows.collect()
}

/// What a lock of these lengths takes now.
fn measure(client: &mut Client, row: &Row) -> usize {
    // SYNC: some servers free in the background otherwise, during the measurement.
    client.ok("FLUSHALL SYNC");
    let owner = "o".repeat(row.owner);
    let request = "r".repeat(row.request);
    let before = used(client);
    let keys: Vec<String> = (0..LOCKS)
        .map(|number| format!("{number:0>0$}", row.key))
        .collect();
    let answers = client.pipeline(keys.iter().map(|key| {
        let mut words: Vec<&[u8]> = vec![b"DLOCK.ACQUIRE", key.as_bytes(), owner.as_bytes(), b"3600000"];
        if !request.is_empty() {
            words.extend([b"REQID", request.as_bytes()]);
        }
        words
    }));
    assert_eq!(answers.len(), LOCKS);
    drop(answers);
    (used(client) - before) / LOCKS
}

fn used(client: &mut Client) -> usize {
    let used = client.server_info("memory", "used_memory");
    used.parse().expect("a number")
}

#[test]
fn a_lock_takes_as_many_bytes_as_the_table_says_and_the_formula_too() {
    let server = Server::start();
    let mut client = server.client();
    let rows = rows();
    assert_eq!(rows.len(), 4, "the table of the page");
    for row in rows {
        let request = if row.request > 0 { 60 + row.request } else { 0 };
        let formula = 165 + 2 * row.key + row.owner * 5 / 4 + request;
        let measured = measure(&mut client, &row);
        for (what, bytes) in [("the table", row.bytes), ("the formula", formula)] {
            let off = measured.abs_diff(bytes) * 100 / bytes;
            assert!(
                off <= TOLERANCE_PERCENT,
                "key {}, owner {}: {what} says {bytes}, measured is {measured}",
                row.key,
                row.owner
            );
        }
    }
}
