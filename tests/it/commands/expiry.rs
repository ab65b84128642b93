//! Expired leases: at once for every command, within two seconds in the keyspace.

use std::time::{Duration, Instant};

use dlock_testkit::{Events, Grant, assert_elapsed_at_most, pause, start, start_with, wait_for};
use redis::Value;

use crate::fixtures::held_by_alice;

/// Documented: an expired lock leaves the keyspace within this time, at `hz 10`.
const GONE_WITHIN: Duration = Duration::from_secs(2);

#[test]
fn expired_lock_is_granted_before_sweep() {
    let (_server, mut client) = start();
    let old = client.acquire("door alice 10000").fence;
    client.release("door alice");
    client.pause_writes_after(&["DLOCK.ACQUIRE door alice 20"]);
    client.wait_for_lease_end("door", "alice");
    let mut replies = client.resume_writes_with(&["EXISTS door", "DLOCK.ACQUIRE door bob 10000"]);
    assert_eq!(replies[0], Value::Int(1), "not swept yet");
    let grant = Grant::parse(replies.remove(1)).expect("the lock is free");
    assert!(grant.fence > old + 1, "alice had fence {old} + 1");
    assert_eq!(client.lock("door").owners(), ["bob"]);
}

#[test]
fn expired_holder_is_hidden_before_sweep() {
    let (_server, mut client) = start();
    client.pause_writes_after(&[
        "DLOCK.ACQUIRE mutex alice 20",
        "DLOCK.ACQUIRE both alice 20 LIMIT 2",
        "DLOCK.ACQUIRE both bob 60000 LIMIT 3",
    ]);
    client.wait_for_lease_end("mutex", "alice");
    client.wait_for_lease_end("both", "alice");
    assert_eq!(client.owner("mutex"), None);
    assert_eq!(client.find_lock("mutex"), None);
    assert_eq!(client.owner("both").as_deref(), Some("bob"));
    let both = client.lock("both");
    assert_eq!((both.limit, both.owners()), (3, vec!["bob".to_owned()]));
    let replies = client.resume_writes_with(&["EXISTS mutex"]);
    assert_eq!(replies, [Value::Int(1)], "not swept yet");
}

#[test]
fn expired_lock_leaves_keyspace_within_two_seconds() {
    let (server, mut client) = start_with("hz 10");
    let mut third = server.client();
    third.ok("SELECT 3");
    client.acquire("door alice 100");
    third.acquire("door alice 100");
    let lease_end = Instant::now() + Duration::from_millis(100);
    // INFO touches no key.
    wait_for("an empty keyspace", || client.info_section("keyspace").is_empty());
    assert_elapsed_at_most(GONE_WITHIN, lease_end);
}

#[test]
fn held_lock_survives_sweeps() {
    let (_server, mut client) = held_by_alice();
    client.acquire("gate alice 50");
    wait_for("a sweep", || !client.exists("gate"));
    pause(300);
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
}

#[test]
fn extended_lease_expires_later() {
    let (_server, mut client) = start();
    let start = Instant::now();
    client.batch(&["DLOCK.ACQUIRE door alice 300", "DLOCK.EXTEND door alice 1500"]);
    client.batch(&["DLOCK.ACQUIRE gate alice 300", "DLOCK.ACQUIRE gate alice 1500"]);
    for key in ["door", "gate"] {
        wait_for("the end of the longer lease", || client.owner(key).is_none());
        let is_expected = start.elapsed() >= Duration::from_millis(1500);
        assert!(is_expected, "{key} ended after {:?}", start.elapsed());
        wait_for("the sweep", || !client.exists(key));
    }
}

#[test]
fn shared_holders_expire_individually() {
    let (server, mut client) = start_with("notify-keyspace-events Ed");
    let mut events = Events::watch(&server);
    client.batch(&[
        "DLOCK.ACQUIRE door alice 50 SHARED",
        "DLOCK.ACQUIRE door bob 60000 SHARED",
        "DLOCK.ACQUIRE door carol 50 SHARED",
    ]);
    let mut seen = Vec::new();
    wait_for("two expired holders", || {
        seen.extend(events.take());
        seen.iter().filter(|event| *event == "dlock.expired door").count() >= 2
    });
    assert_eq!(seen.len(), 5, "one event for each holder: {seen:?}");
    assert_eq!(client.lock("door").owners(), ["bob"]);
    assert_eq!(client.stat("dlock_expired"), 2);
}

#[test]
fn lock_has_no_redis_ttl() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000");
    client.acquire("door alice 10000");
    client.extend("door alice 60000");
    assert_eq!(client.ask::<i64>("PTTL door"), -1);
    assert_eq!(client.ask::<i64>("PERSIST door"), 0);
}

#[test]
fn foreign_ttl_removes_lock_of_all_holders() {
    let (_server, mut client) = start();
    let fence = client.acquire("door alice 60000 SHARED").fence;
    client.acquire("door bob 60000 SHARED");
    client.ask::<i64>("PEXPIRE door 50");
    wait_for("the time to live", || client.owner("door").is_none());
    client.assert_error("NOTHELD", "DLOCK.RELEASE door alice");
    client.assert_error("NOTHELD", "DLOCK.EXTEND door bob 60000");
    assert!(client.acquire("door carol 10000").fence > fence + 1);
    assert_eq!(client.ask::<i64>("PTTL door"), -1);
}

#[test]
fn grant_to_new_holder_removes_foreign_ttl() {
    let (_server, mut client) = start();
    client.acquire("door alice 60000 SHARED");
    client.ask::<i64>("PEXPIRE door 100000");
    client.acquire("door alice 60000 SHARED");
    client.extend("door alice 70000");
    let is_expected = client.ask::<i64>("PTTL door") > 0;
    assert!(is_expected, "re-entry and extend grant to no new holder");
    client.acquire("door bob 60000 SHARED");
    assert_eq!(client.ask::<i64>("PTTL door"), -1);

    client.pause_writes_after(&["DLOCK.ACQUIRE gate alice 20", "PEXPIRE gate 100000"]);
    client.wait_for_lease_end("gate", "alice");
    let replies = client.resume_writes_with(&["PTTL gate", "DLOCK.ACQUIRE gate bob 10000", "PTTL gate"]);
    let is_expected = matches!(replies[0], Value::Int(ms) if ms > 0);
    assert!(is_expected, "not swept yet: {:?}", replies[0]);
    assert_eq!(replies[2], Value::Int(-1));
}

#[test]
fn repeated_reqid_keeps_foreign_ttl() {
    let (_server, mut client) = start();
    client.acquire("door alice 60000 REQID r1");
    client.ask::<i64>("PEXPIRE door 100000");
    client.acquire("door alice 60000 REQID r1");
    assert!(client.ask::<i64>("PTTL door") > 0);
}

#[test]
fn twenty_thousand_expired_locks_are_removed_within_seconds() {
    const LOCKS: usize = 20_000;
    let (_server, mut client) = start_with("hz 10");
    let keys: Vec<String> = (0..LOCKS).map(|n| format!("lock:{n}")).collect();
    let replies = client.pipeline(
        keys.iter()
            .map(|key| vec![&b"DLOCK.ACQUIRE"[..], key.as_bytes(), b"alice", b"1500"]),
    );
    assert!(replies.iter().all(|reply| matches!(reply, Value::Array(_))));
    let lease_end = Instant::now() + Duration::from_millis(1500);
    wait_for("an empty keyspace", || client.ask::<usize>("DBSIZE") == 0);
    assert_elapsed_at_most(GONE_WITHIN, lease_end);
    assert_eq!(client.stat("dlock_expired"), LOCKS as i64);
    assert_eq!(client.stat("dlock_locks"), 0);
}

#[test]
fn sweep_resumes_after_client_pause() {
    let (_server, mut client) = start_with("appendonly yes");
    client.pause_writes_after(&["DLOCK.ACQUIRE door alice 20"]);
    client.wait_for_lease_end("door", "alice");
    // Several ticks: to write in one of them would abort the server.
    pause(400);
    assert_eq!(client.ask::<i64>("DBSIZE"), 1);
    client.ok("CLIENT UNPAUSE");
    wait_for("the sweep", || client.ask::<i64>("DBSIZE") == 0);
}
