//! The memory table and formula of `operations.md` match a real server.

use std::path::Path;

use crate::support::page;
use dlock_testkit::{Client, start};

const LOCKS: usize = 20_000;
/// Allocators and server versions differ.
const TOLERANCE_PERCENT: usize = 25;

/// A row of the table: lengths of the names, and the memory of one lock.
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

/// Memory of one lock with names of these lengths.
fn measure(client: &mut Client, row: &Row) -> usize {
    // SYNC, or some servers free memory in the background during the measurement.
    client.ok("FLUSHALL SYNC");
    let owner = "o".repeat(row.owner);
    let request = "r".repeat(row.request);
    let before = used(client);
    let keys: Vec<String> = (0..LOCKS)
        .map(|number| format!("{number:0>0$}", row.key))
        .collect();
    let replies = client.pipeline(keys.iter().map(|key| {
        let mut args: Vec<&[u8]> = vec![b"DLOCK.ACQUIRE", key.as_bytes(), owner.as_bytes(), b"600000"];
        if !request.is_empty() {
            args.extend([b"REQID", request.as_bytes()]);
        }
        args
    }));
    assert_eq!(replies.len(), LOCKS);
    drop(replies);
    (used(client) - before) / LOCKS
}

fn used(client: &mut Client) -> usize {
    let used = client.server_info("memory", "used_memory");
    used.parse().expect("a number")
}

#[test]
fn lock_memory_matches_the_table_and_the_formula() {
    let (_server, mut client) = start();
    let rows = rows();
    assert_eq!(rows.len(), 4, "rows of the memory table");
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
