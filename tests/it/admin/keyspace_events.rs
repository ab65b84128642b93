//! Keyspace events of class `d`, and when there are none.

use dlock_testkit::{Events, start_with, wait_for};

use crate::fixtures::NOTHING;

#[test]
fn holder_changes_are_notified() {
    let (server, mut client) = start_with("notify-keyspace-events Ed");
    let mut events = Events::watch(&server);
    client.acquire("door alice 10000 SHARED");
    assert_eq!(events.take(), ["dlock.acquired door"]);
    client.acquire("door bob 10000 SHARED");
    assert_eq!(events.take(), ["dlock.acquired door"]);
    client.extend("door alice 60000");
    assert_eq!(events.take(), ["dlock.extended door"]);
    client.release("door alice");
    assert_eq!(events.take(), ["dlock.released door"]);
    client.acquire("door bob 10000 SHARED");
    client.release("door bob ALL");
    assert_eq!(events.take(), ["dlock.released door"]);
}

#[test]
fn extend_without_longer_lease_is_notified() {
    let (server, mut client) = start_with("notify-keyspace-events Ed");
    let mut events = Events::watch(&server);
    client.acquire("door alice 10000");
    events.take();
    client.extend("door alice 1");
    assert_eq!(events.take(), ["dlock.extended door"]);
}

#[test]
fn requests_that_change_no_holder_are_not_notified() {
    let (server, mut client) = start_with("notify-keyspace-events Ed");
    let mut events = Events::watch(&server);
    client.acquire("door alice 10000 REQID r1");
    client.ok("SET text value");
    events.take();
    let mut silent = |command: &str| {
        // Errors are expected.
        let _ = client.call(command);
        assert_eq!(events.take(), NOTHING, "{command}");
    };
    silent("DLOCK.ACQUIRE door alice 20000");
    silent("DLOCK.ACQUIRE door alice 20000 REQID r1");
    silent("DLOCK.ACQUIRE door alice 20000 REQID r2");
    silent("DLOCK.RELEASE door alice REQID r2");
    silent("DLOCK.RELEASE door alice REQID r2");
    silent("DLOCK.RELEASE door alice");
    silent("DLOCK.ACQUIRE door bob 10000");
    silent("DLOCK.ACQUIRE door alice 0");
    silent("DLOCK.RELEASE door bob");
    silent("DLOCK.RELEASE door alice FENCE 1");
    silent("DLOCK.RELEASE free bob");
    silent("DLOCK.EXTEND door bob 10000");
    silent("DLOCK.EXTEND free bob 10000");
    silent("DLOCK.ACQUIRE text alice 10000");
    silent("DLOCK.OWNER door");
    silent("DLOCK.INFO door");
    silent("DLOCK.OWNER free");
    silent("DLOCK.INFO free");
    assert_eq!(client.lock("door").holder("alice").holds, 1);
}

#[test]
fn expired_holder_is_notified_before_next_grant() {
    let (server, mut client) = start_with("notify-keyspace-events Ed");
    let mut events = Events::watch(&server);
    client.pause_writes_after(&[
        "DLOCK.ACQUIRE door alice 20 SHARED",
        "DLOCK.ACQUIRE door bob 20 SHARED",
    ]);
    client.wait_for_lease_end("door", "alice");
    client.wait_for_lease_end("door", "bob");
    client.resume_writes_with(&["DLOCK.ACQUIRE door carol 10000"]);
    let expected = [
        "dlock.acquired door",
        "dlock.acquired door",
        "dlock.expired door",
        "dlock.expired door",
        "dlock.acquired door",
    ];
    assert_eq!(events.take(), expected);
}

#[test]
fn release_notifies_expired_holders() {
    let (server, mut client) = start_with("notify-keyspace-events Ed");
    let mut events = Events::watch(&server);
    client.pause_writes_after(&[
        "DLOCK.ACQUIRE door alice 20 SHARED",
        "DLOCK.ACQUIRE door bob 60000 SHARED",
    ]);
    client.wait_for_lease_end("door", "alice");
    client.resume_writes_with(&["DLOCK.RELEASE door bob"]);
    let mut announced = events.take().split_off(2);
    announced.sort();
    assert_eq!(announced, ["dlock.expired door", "dlock.released door"]);
}

#[test]
fn sweep_notifies_each_expired_holder_once() {
    let (server, mut client) = start_with("notify-keyspace-events Ed");
    let mut events = Events::watch(&server);
    client.acquire("door alice 30");
    let mut seen = Vec::new();
    wait_for("the sweep", || {
        seen.extend(events.take());
        !client.exists("door")
    });
    seen.extend(events.take());
    assert_eq!(seen, ["dlock.acquired door", "dlock.expired door"]);
}

#[test]
fn event_is_published_for_key_and_event_in_its_database() {
    let (server, mut client) = start_with("notify-keyspace-events KEd");
    let mut events = Events::watch(&server);
    client.ok("SELECT 2");
    client.acquire("door alice 10000");
    let published = |channel: &str, message: &str| (channel.to_owned(), message.to_owned());
    let expected = [
        published("__keyspace@2__:door", "dlock.acquired"),
        published("__keyevent@2__:dlock.acquired", "door"),
    ];
    assert_eq!(events.messages(), expected);
}

#[test]
fn events_are_silent_without_module_class() {
    let (server, mut client) = start_with("notify-keyspace-events KEg$lshzxet");
    let mut events = Events::watch(&server);
    client.acquire("door alice 10000");
    client.extend("door alice 20000");
    client.release("door alice");
    assert_eq!(events.take(), NOTHING);
    client.config_set("notify-keyspace-events", "Ed");
    client.acquire("door alice 10000");
    assert_eq!(events.take(), ["dlock.acquired door"]);
}

#[test]
fn foreign_command_is_notified_by_server_only() {
    let (server, mut client) = start_with("notify-keyspace-events Eg$d");
    let mut events = Events::watch(&server);
    client.acquire("door alice 10000");
    events.take();
    client.ask::<i64>("DEL door");
    assert_eq!(events.take(), ["del door"]);
}
