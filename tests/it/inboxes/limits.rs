//! What bounds waiting through inboxes, and what a server serves while it refuses writes.

use std::time::{Duration, Instant};

use dlock_testkit::{Inbox, Waiter, pause};

use super::{held_with_inbox, shown};

#[test]
fn error_names_the_setting_that_is_full() {
    let (_server, mut client, _inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    let rows = [
        (
            "dlock.max-waiters-per-lock",
            "DLOCK.ACQUIRE door dave 60000 BLOCK 0",
        ),
        ("dlock.max-waiters", "DLOCK.ACQUIRE door dave 60000 BLOCK 0"),
        ("dlock.max-inboxes", "DLOCK.GRANTS other 0"),
    ];
    for (setting, command) in rows {
        client.config_set(setting, "1");
        let error = client.error(command);
        assert!(error.starts_with("QUEUEFULL "), "{error}");
        let mut words = error.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '.'));
        let named = words.find_map(|word| word.starts_with("dlock.").then(|| word.trim_end_matches('.')));
        assert_eq!(named, Some(setting), "{error}");
        client.config_set(setting, "1000");
    }
}

#[test]
fn paused_writes_hold_queue_back_and_serve_readers() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.acquire("gate alice 60000");
    client.enqueue("gate carol 60000 QUEUE inbox 2000 REQID r1");
    client.batch(&[
        "DLOCK.ACQUIRE hall alice 1000",
        "DLOCK.ACQUIRE hall bob 60000 QUEUE inbox 0 REQID r1",
    ]);
    client.pause_writes_after(&[]);
    let mut held_back = Waiter::connect(&server);
    held_back.send("DLOCK.ACQUIRE door dave 60000 QUEUE inbox 0 REQID r1");
    Inbox::make(&server, "other").assert_empty();
    assert_eq!(
        inbox.call("BLOCK 1").answers,
        [],
        "a blocked call is served as well"
    );
    assert_eq!(shown(&inbox.take(1)), ["timeout r1 gate carol"]);
    client.wait_for_lease_end("hall", "alice");
    assert_eq!(inbox.call("BLOCK 200").answers, [], "nothing is granted");
    assert!(held_back.is_silent());
    client.ok("CLIENT UNPAUSE");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 hall bob"]);
    held_back.next_reply();
    assert_eq!(client.queue("door"), ["dave"]);
}

#[test]
fn paused_clients_hold_readers_back() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    let mut other = Inbox::make(&server, "other");
    client.batch(&["CLIENT PAUSE 1500 ALL"]);
    let start = Instant::now();
    inbox.send("");
    other.send("BLOCK 1");
    pause(500);
    assert!(inbox.connection().is_silent());
    assert_eq!(shown(&inbox.receive().answers), ["granted r1 door bob"]);
    assert_eq!(other.receive().answers, []);
    assert!(start.elapsed() >= Duration::from_millis(1_000));
}
