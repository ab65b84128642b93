//! The memory of inboxes: it is bounded by `maxmemory`, and given back when they end or are empty.

use std::ops::Range;

use dlock_testkit::{Client, start_with, wait_for};
use redis::Value;

use super::{enqueue_many, held_with_inbox_and};

/// More than a server's memory varies for other reasons, and less than a table keeps that is as large as it once was.
const SLACK: usize = 1 << 20;

fn used_memory(client: &mut Client) -> usize {
    client.server_number("memory", "used_memory")
}

#[track_caller]
fn wait_for_memory(client: &mut Client, before: usize) {
    wait_for("memory that is given back", || {
        used_memory(client) < before + SLACK
    });
}

/// Creates inboxes until an error. Returns how many, and the error.
fn make_inboxes(client: &mut Client, max: usize) -> (usize, Option<String>) {
    for first in (0..max).step_by(1_000) {
        let calls = (first..first + 1_000).map(|n| format!("DLOCK.GRANTS inbox{n:016} 0 TTL 60000"));
        let replies = client.batch(&calls.collect::<Vec<_>>());
        let failed = replies.iter().enumerate().find_map(|(n, reply)| match reply {
            Value::ServerError(error) => Some((first + n, error.code().to_owned())),
            _ => None,
        });
        if let Some((count, code)) = failed {
            return (count, Some(code));
        }
    }
    (max, None)
}

fn end_inboxes(client: &mut Client, which: Range<usize>) {
    let calls: Vec<_> = which
        .map(|n| format!("DLOCK.GRANTS inbox{n:016} 0 TTL 0"))
        .collect();
    for calls in calls.chunks(1_000) {
        client.batch(calls);
    }
}

#[test]
fn inboxes_that_end_give_their_memory_back() {
    const INBOXES: usize = 25_000;
    let (_server, mut client) = start_with("dlock.max-inboxes 100000");
    let before = used_memory(&mut client);
    assert_eq!(make_inboxes(&mut client, INBOXES), (INBOXES, None));
    assert!(used_memory(&mut client) > before + 2 * SLACK);
    // One that stays keeps no memory of the others.
    end_inboxes(&mut client, 1..INBOXES);
    client.wait_for_inboxes(1);
    wait_for_memory(&mut client, before);
}

#[test]
fn inboxes_stop_at_maxmemory_and_locks_are_granted_after_their_end() {
    let (_server, mut client) = start_with("dlock.max-inboxes 1000000");
    let before = used_memory(&mut client);
    client.config_set("maxmemory", &(before + 8 * SLACK).to_string());
    let (made, error) = make_inboxes(&mut client, 1_000_000);
    assert_eq!(error.as_deref(), Some("OOM"), "{made}");
    assert!(made > 1_000, "{made}");
    // A growing table goes beyond it, once and by its own size.
    assert!(used_memory(&mut client) < before + 16 * SLACK);
    end_inboxes(&mut client, 0..made);
    client.wait_for_inboxes(0);
    wait_for_memory(&mut client, before);
    client.acquire("door alice 60000");
    client.ask::<Value>("DLOCK.GRANTS inbox 0");
}

#[test]
fn inbox_that_was_full_gives_its_memory_back() {
    const ANSWERS: usize = 10_000;
    let limit = format!("dlock.max-waiters-per-lock {ANSWERS}");
    let (_server, mut client, mut inbox) = held_with_inbox_and(&limit);
    let before = used_memory(&mut client);
    enqueue_many(&mut client, "door", ANSWERS, "");
    let withdrawals: Vec<_> = (0..ANSWERS)
        .map(|n| format!("DLOCK.RELEASE door owner{n} REQID r{n}"))
        .collect();
    for withdrawals in withdrawals.chunks(1_000) {
        client.batch(withdrawals);
    }
    assert!(used_memory(&mut client) > before + SLACK);
    inbox.take(ANSWERS);
    inbox.assert_empty();
    wait_for_memory(&mut client, before);
    assert_eq!(
        client.stat("dlock_inboxes"),
        1,
        "it gave its memory back, and not by its end"
    );
}
