//! What passes the check, and what does not.

use dlock_testkit::{reply_bytes, start, start_with};
use redis::Value;

use super::{guard_of, guarded_by_alice};
use crate::fixtures::held_by_alice;

#[test]
fn guard_of_holder_runs_command() {
    let (_server, mut client, guard) = guarded_by_alice();
    client.ok(&format!("{guard} SET data 1"));
    assert_eq!(client.ask::<i64>(&format!("{guard} incr data")), 2);
    assert_eq!(client.ask::<i64>("GET data"), 2);
    assert_eq!(client.stat("dlock_guarded"), 2);
}

#[test]
fn bare_guard_replies_remaining_lease() {
    let (_server, mut client, guard) = guarded_by_alice();
    let lease_ms: u64 = client.ask(&guard);
    assert!((50_000..=60_000).contains(&lease_ms), "{lease_ms}");
    let holder = client.lock("door").holder("alice").clone();
    assert!(holder.lease_ms <= lease_ms, "the lease was not extended");
    assert_eq!(holder.holds, 1);
}

#[test]
fn guard_of_lost_lock_is_refused_and_runs_nothing() {
    let (_server, mut client) = held_by_alice();
    let fence = client.lock("door").holder("alice").fence;
    client.ask::<Value>("RPUSH list 1");
    for inner in ["", " SET data 1", " DEL list", " NONSENSE", " SET"] {
        for (code, lock) in [
            ("NOTHELD", format!("free alice {fence}")),
            ("NOTHELD", format!("list alice {fence}")),
            ("NOTOWNER", format!("door bob {fence}")),
            ("STALE", format!("door alice {}", fence + 1)),
            ("STALE", format!("door alice {}", fence - 1)),
        ] {
            client.assert_error(code, &format!("DLOCK.GUARD {lock}{inner}"));
        }
    }
    assert!(!client.exists("data") && client.exists("list"));
    assert_eq!(client.stat("dlock_guarded"), 0);
    assert_eq!(client.stat("dlock_guards_refused"), 25);
}

#[test]
fn guard_under_earlier_fence_of_same_owner_is_stale() {
    let (_server, mut client, guard) = guarded_by_alice();
    client.release("door alice");
    client.acquire("door alice 60000");
    client.assert_error("STALE", &format!("{guard} SET data late"));
    assert!(!client.exists("data"));
}

#[test]
fn guard_of_expired_lease_is_refused_before_sweep() {
    let (_server, mut client) = start();
    client.acquire("door alice 3000");
    let guard = guard_of(&mut client, "door", "alice");
    client.ok(&format!("{guard} SET data 1"));
    client.pause_writes_after(&[]);
    client.wait_for_lease_end("door", "alice");
    let replies = client.resume_writes_with(&["EXISTS door", &format!("{guard} SET data late")]);
    assert_eq!(replies[0], Value::Int(1), "the holder was not swept yet");
    assert!(is_error(&replies[1], "NOTHELD"), "{replies:?}");
    assert_eq!(client.ask::<i64>("GET data"), 1);
}

#[test]
fn guard_of_broken_lock_is_refused() {
    let (_server, mut client) = start();
    for breaking in ["DEL door", "SET door text", "RENAME door away", "FLUSHALL"] {
        client.ok("FLUSHALL");
        client.acquire("door alice 60000");
        let guard = guard_of(&mut client, "door", "alice");
        client.ask::<Value>(breaking);
        client.assert_error("NOTHELD", &format!("{guard} SET data late"));
        assert!(!client.exists("data"), "{breaking}");
    }
}

#[test]
fn each_holder_of_shared_lock_and_semaphore_passes_under_its_own_fence() {
    let (_server, mut client) = start();
    for limit in ["SHARED", "LIMIT 2"] {
        client.acquire(&format!("door alice 60000 {limit}"));
        client.acquire(&format!("door bob 60000 {limit}"));
        let (alice, bob) = (
            guard_of(&mut client, "door", "alice"),
            guard_of(&mut client, "door", "bob"),
        );
        client.ok(&format!("{alice} SET data 1"));
        client.ok(&format!("{bob} SET data 2"));
        client.assert_error("STALE", &format!("{} SET data 3", bob.replace("bob", "alice")));
        client.release("door alice");
        client.assert_error("NOTOWNER", &format!("{alice} SET data 3"));
        client.ok(&format!("{bob} SET data 4"));
        client.release("door bob");
    }
}

#[test]
fn guard_of_known_holder_passes_during_grace_period() {
    let (mut server, mut client) =
        start_with("appendonly yes\nappendfsync always\ndlock.startup-grace-ms 0\n");
    client.acquire("door alice 60000");
    let guard = guard_of(&mut client, "door", "alice");
    server.add_config("dlock.startup-grace-ms 60000");
    server.crash_and_restart();
    let mut client = server.client();
    client.assert_error("GRACE", "DLOCK.ACQUIRE gate bob 60000");
    client.ok(&format!("{guard} SET data 1"));
    client.assert_error(
        "NOTHELD",
        &format!("{} SET data 2", guard.replace("door", "gate")),
    );
    client.assert_error("STALE", &format!("{guard}0 SET data 2"));
}

#[test]
fn guard_leaves_waiters_and_lease_as_they_are() {
    let (server, mut client, guard) = guarded_by_alice();
    let _bob = server.waiter("door bob 60000 BLOCK 0");
    client.wait_for_queue("door", 1);
    let fence = client.lock("door").holder("alice").fence;
    client.ok(&format!("{guard} SET data 1"));
    client.assert_sole_holder("door", "alice", fence, 1);
    assert_eq!(client.lock("door").waiting, 1);
}

#[test]
fn guard_replies_in_protocol_of_caller() {
    let (server, mut client, guard) = guarded_by_alice();
    client.ask::<Value>("HSET hash field value");
    client.ask::<Value>("ZADD set 1.5 member");
    for (inner, resp2, resp3) in [
        (
            "HGETALL hash",
            "*2\r\n$5\r\nfield\r\n$5\r\nvalue\r\n",
            "%1\r\n$5\r\nfield\r\n$5\r\nvalue\r\n",
        ),
        ("ZSCORE set member", "$3\r\n1.5\r\n", ",1.5\r\n"),
        ("GET nothing", "$-1\r\n", "_\r\n"),
        ("ECHO text", "$4\r\ntext\r\n", "$4\r\ntext\r\n"),
        ("STRLEN hash", WRONG_TYPE, WRONG_TYPE),
    ] {
        let command = format!("{guard} {inner}");
        assert_eq!(reply_bytes(&server, 2, &command), resp2, "{inner}");
        assert_eq!(reply_bytes(&server, 3, &command), resp3, "{inner}");
    }
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

fn is_error(reply: &Value, code: &str) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == code)
}
