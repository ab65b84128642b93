//! Expired locks leave the keyspace within two seconds.

use std::time::{Duration, Instant};

use dlock_testkit::{assert_elapsed_at_most, pause, start_with, wait_for};
use redis::Value;

/// Documented: an expired lock leaves the keyspace within this time, at `hz 10`.
const GONE_WITHIN: Duration = Duration::from_secs(2);

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
