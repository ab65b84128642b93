//! Keyspace events of class `d`, and where there are none.

use dlock_testkit::{Events, Server, wait_for};

const NONE: [&str; 0] = [];

#[test]
fn each_change_of_a_holder_is_announced() {
    let server = Server::with("notify-keyspace-events Ed");
    let mut client = server.client();
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
fn an_extension_that_does_not_prolong_is_announced_too() {
    let server = Server::with("notify-keyspace-events Ed");
    let mut client = server.client();
    let mut events = Events::watch(&server);
    client.acquire("door alice 10000");
    events.take();
    client.extend("door alice 1");
    assert_eq!(events.take(), ["dlock.extended door"]);
}

#[test]
fn nothing_is_announced_where_no_holder_comes_goes_or_extends() {
    let server = Server::with("notify-keyspace-events Ed");
    let mut client = server.client();
    let mut events = Events::watch(&server);
    client.acquire("door alice 10000 REQID r1");
    client.ok("SET text value");
    events.take();
    let mut silent = |command: &str| {
        // An error is an answer too.
        let _ = client.call(command);
        assert_eq!(events.take(), NONE, "{command}");
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
fn an_expired_holder_is_announced_before_the_next_one() {
    let server = Server::with("notify-keyspace-events Ed");
    let mut client = server.client();
    let mut events = Events::watch(&server);
    client.stop_writing_after(&[
        "DLOCK.ACQUIRE door alice 20 SHARED",
        "DLOCK.ACQUIRE door bob 20 SHARED",
    ]);
    client.wait_for_lease_end("door", "alice");
    client.wait_for_lease_end("door", "bob");
    client.resume_writing_with(&["DLOCK.ACQUIRE door carol 10000"]);
    assert_eq!(
        events.take(),
        [
            "dlock.acquired door",
            "dlock.acquired door",
            "dlock.expired door",
            "dlock.expired door",
            "dlock.acquired door"
        ]
    );
}

#[test]
fn a_release_announces_those_whose_lease_had_ended() {
    let server = Server::with("notify-keyspace-events Ed");
    let mut client = server.client();
    let mut events = Events::watch(&server);
    client.stop_writing_after(&[
        "DLOCK.ACQUIRE door alice 20 SHARED",
        "DLOCK.ACQUIRE door bob 60000 SHARED",
    ]);
    client.wait_for_lease_end("door", "alice");
    client.resume_writing_with(&["DLOCK.RELEASE door bob"]);
    let mut announced = events.take().split_off(2);
    announced.sort();
    assert_eq!(announced, ["dlock.expired door", "dlock.released door"]);
}

#[test]
fn the_sweep_announces_each_expired_holder_once() {
    let server = Server::with("notify-keyspace-events Ed");
    let mut client = server.client();
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
fn an_event_is_published_for_the_key_and_for_the_event_in_its_database() {
    let server = Server::with("notify-keyspace-events KEd");
    let mut client = server.client();
    let mut events = Events::watch(&server);
    client.ok("SELECT 2");
    client.acquire("door alice 10000");
    let published = |channel: &str, message: &str| (channel.to_owned(), message.to_owned());
    assert_eq!(
        events.messages(),
        [
            published("__keyspace@2__:door", "dlock.acquired"),
            published("__keyevent@2__:dlock.acquired", "door")
        ]
    );
}

#[test]
fn without_the_class_of_modules_nothing_is_announced() {
    let server = Server::with("notify-keyspace-events KEg$lshzxet");
    let mut client = server.client();
    let mut events = Events::watch(&server);
    client.acquire("door alice 10000");
    client.extend("door alice 20000");
    client.release("door alice");
    assert_eq!(events.take(), NONE);
    client.config_set("notify-keyspace-events", "Ed");
    client.acquire("door alice 10000");
    assert_eq!(events.take(), ["dlock.acquired door"]);
}

#[test]
fn what_an_administrator_breaks_is_announced_by_the_server_alone() {
    let server = Server::with("notify-keyspace-events Eg$d");
    let mut client = server.client();
    let mut events = Events::watch(&server);
    client.acquire("door alice 10000");
    events.take();
    client.ask::<i64>("DEL door");
    assert_eq!(events.take(), ["del door"]);
}
