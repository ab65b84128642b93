//! Waiting without a connection: ACQUIRE with QUEUE, and the inboxes that DLOCK.GRANTS makes and reads.

use dlock_testkit::{Answer, Client, Inbox, Server, start, start_with};

mod answers;
mod cluster;
mod ends;
mod limits;
mod memory;
mod persistence;
mod queue;
mod reader;
mod reader_killed;
mod rollback;

/// A server where alice holds `door`, a client of it, and the inbox `inbox`.
fn held_with_inbox() -> (Server, Client, Inbox) {
    held_with_inbox_on(start())
}

/// As [`held_with_inbox`], with more lines in the configuration file.
fn held_with_inbox_and(lines: &str) -> (Server, Client, Inbox) {
    held_with_inbox_on(start_with(lines))
}

fn held_with_inbox_on((server, mut client): (Server, Client)) -> (Server, Client, Inbox) {
    client.acquire("door alice 60000");
    let inbox = Inbox::make(&server, "inbox");
    (server, client, inbox)
}

/// What the answers say: `granted r1 door bob`.
fn shown(answers: &[Answer]) -> Vec<String> {
    answers.iter().map(Answer::shown).collect()
}

/// Queues requests `r0`, `r1` ... of as many owners for `key`.
#[track_caller]
fn enqueue_many(client: &mut Client, key: &str, count: usize, options: &str) {
    let requests: Vec<String> = (0..count)
        .map(|n| format!("DLOCK.ACQUIRE {key} owner{n} 60000 {options} QUEUE inbox 0 REQID r{n}"))
        .collect();
    for requests in requests.chunks(500) {
        client.batch(requests);
    }
    assert_eq!(client.waiting(key), count as i64);
}
