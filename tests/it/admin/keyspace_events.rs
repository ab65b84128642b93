//! The channels of keyspace events of class `d`, and when there are none.

use dlock_testkit::{Events, start_with};

use crate::fixtures::NOTHING;

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
