//! `dlock show`.

use dlock_testkit::{Server, start};
use serde_json::Value;

use crate::support::{at, json};

#[test]
fn show_lists_holders_and_waiters() {
    let (server, mut client) = start();
    let fence = client.acquire("job alice 600000").fence;
    client.acquire("job alice 600000");
    let _bob = server.waiter("job bob 60000 BLOCK 0");
    let _carol = server.waiter("job carol 60000 SHARED BLOCK 500000");
    let lock = json(&server, &["show", "job"]);
    assert_eq!(lock["limit"], 1);
    let holder = &lock["holders"][0];
    assert_eq!((&holder["owner"], &holder["holds"]), (&"alice".into(), &2.into()));
    assert_eq!(holder["fence"], fence);
    assert_eq!(lock["waiting"], 2);
    assert_eq!(lock["waiters"][0]["owner"], "bob");
    assert_eq!(lock["waiters"][0]["timeout_ms"], Value::Null);
    assert_eq!(lock["waiters"][1]["timeout_ms"], 500_000);
    let text = at(&server, &["show", "job"]);
    for words in [
        "mutex, held by 1",
        "alice",
        "Waiters: 2",
        "bob",
        "none",
        "carol",
        "shared",
        "8m20s",
    ] {
        assert!(text.out.contains(words), "{words}: {}", text.out);
    }
}

#[test]
fn show_marks_waiters_of_inboxes_if_there_are_any() {
    let (server, mut client) = start();
    client.acquire("job alice 600000");
    let _bob = server.waiter("job bob 60000 BLOCK 0");
    let text = at(&server, &["show", "job"]).out;
    assert!(text.contains("TIMEOUT\n") && !text.contains("BY\n"), "{text}");
    client.ask::<redis::Value>("DLOCK.GRANTS inbox 0 TTL 60000");
    client.ask::<redis::Value>("DLOCK.ACQUIRE job carol 60000 QUEUE inbox 0 REQID c1");
    let text = at(&server, &["show", "job"]).out;
    for (owner, by) in [("bob", "connection"), ("carol", "inbox")] {
        let line = text.lines().find(|line| line.contains(owner));
        assert!(line.is_some_and(|line| line.ends_with(by)), "{owner}: {text}");
    }
    let waiters = &json(&server, &["show", "job"])["waiters"];
    assert_eq!(
        (&waiters[0]["queued"], &waiters[1]["queued"]),
        (&Value::Bool(false), &Value::Bool(true))
    );
}

#[test]
fn show_and_break_of_free_lock_exit_1() {
    let server = Server::start();
    at(&server, &["show", "job"]).exits(1).shows("not held");
    let lock = json(&server, &["show", "job"]);
    assert_eq!(
        (&lock["holders"], &lock["waiting"]),
        (&Value::Array(vec![]), &0.into())
    );
    at(&server, &["break", "--yes", "job"]).exits(1);
}
