//! DUMP, RESTORE, MIGRATE and COPY of a lock.

use dlock_testkit::{Client, LockInfo, Server, payload, start, start_with, wait_for};
use redis::Value;

use crate::fixtures::held_by_alice;

/// A lock with limits, request ids and several holders.
fn make_lock(client: &mut Client) -> LockInfo {
    for request in [
        "alice 60000 LIMIT 5",
        "alice 60000 LIMIT 5 REQID r1",
        "bob 90000 LIMIT 4 REQID r1",
        "carol 60000 SHARED",
    ] {
        client.acquire(&format!("door {request}"));
    }
    client.lock("door")
}

fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    client.ask(&format!("DUMP {key}"))
}

fn restore(client: &mut Client, key: &str, payload: &[u8]) {
    assert_eq!(
        client.ask_args::<Value>(&[b"RESTORE", key.as_bytes(), b"0", payload]),
        Value::Okay
    );
}

#[track_caller]
fn assert_same_lock(client: &mut Client, key: &str, before: &LockInfo) {
    let after = client.lock(key);
    assert_eq!((after.limit, after.standing()), (before.limit, before.standing()));
    for (then, now) in before.holders.iter().zip(&after.holders) {
        assert!(now.lease_ms <= then.lease_ms + 1, "{then:?} {now:?}");
        assert!(now.lease_ms + 20_000 > then.lease_ms, "{then:?} {now:?}");
        assert!(now.held_ms >= then.held_ms, "{then:?} {now:?}");
    }
    assert_eq!(
        client.acquire(&format!("{key} bob 90000 LIMIT 4 REQID r1")).holds,
        1,
        "request ids are restored"
    );
}

#[test]
fn restore_keeps_holders_holds_fences_and_leases() {
    let (_server, mut client) = start();
    let before = make_lock(&mut client);
    let payload = dump(&mut client, "door");
    client.ask::<i64>("DEL door");
    restore(&mut client, "door", &payload);
    assert_same_lock(&mut client, "door", &before);
    assert_eq!(client.ask::<String>("TYPE door"), "dist-lock");
    assert_eq!(client.ask::<i64>("PTTL door"), -1);
}

#[test]
fn restored_lock_expires() {
    let (_server, mut client) = start();
    client.acquire("door alice 1500");
    let payload = dump(&mut client, "door");
    restore(&mut client, "copy", &payload);
    wait_for("the sweep", || client.ask::<i64>("DBSIZE") == 0);
}

#[test]
fn restore_onto_existing_key_needs_replace() {
    let (_server, mut client) = start();
    let before = make_lock(&mut client);
    let payload = dump(&mut client, "door");
    client.acquire("gate dave 60000");
    assert_eq!(
        client.error_code_args(&[b"RESTORE", b"gate", b"0", &payload]),
        "BUSYKEY"
    );
    assert_eq!(client.lock("gate").owners(), ["dave"]);
    client.ask_args::<Value>(&[b"RESTORE", b"gate", b"0", &payload, b"REPLACE"]);
    assert_same_lock(&mut client, "gate", &before);
    client.assert_error("NOTOWNER", "DLOCK.RELEASE gate dave");
}

#[test]
fn grant_after_restore_has_larger_fence() {
    let ahead = Server::start();
    let behind = Server::start();
    behind.client().acquire("gate alice 60000");
    let mut client = ahead.client();
    client.acquire("first alice 60000");
    // A promotion raises the counter ahead of the clock.
    client.ok("REPLICAOF 127.0.0.1 1");
    client.ok("REPLICAOF NO ONE");
    let fence = client.acquire("door alice 60000").fence;
    let payload = dump(&mut client, "door");
    let mut client = behind.client();
    restore(&mut client, "door", &payload);
    assert!(client.acquire("other alice 60000").fence > fence);
    client.release("door alice");
    assert!(client.acquire("door bob 60000").fence > fence);
}

#[test]
fn restore_is_replicated() {
    let server = Server::start();
    let replica = server.replica();
    let mut client = server.client();
    let before = make_lock(&mut client);
    let payload = dump(&mut client, "door");
    restore(&mut client, "copy", &payload);
    client.sync();
    let copy = replica.client().lock("copy");
    assert_eq!((copy.limit, copy.standing()), (before.limit, before.standing()));
}

#[test]
fn migrate_moves_lock_to_another_server() {
    let source = Server::start();
    let target = Server::start();
    let (mut from, mut to) = (source.client(), target.client());
    let before = make_lock(&mut from);
    from.ok(&format!("MIGRATE 127.0.0.1 {} door 0 10000", target.port()));
    assert!(!from.exists("door"));
    assert_same_lock(&mut to, "door", &before);
    from.assert_error("NOTHELD", "DLOCK.RELEASE door alice");
    assert_eq!(to.release("door carol"), 0);
}

#[test]
fn copy_of_lock_is_refused() {
    let (_server, mut client) = held_by_alice();
    for command in ["COPY door gate", "COPY door gate REPLACE", "COPY door door DB 1"] {
        client.assert_error("ERR", command);
    }
    assert_eq!(client.ask::<i64>("DBSIZE"), 1);
    client.ok("SELECT 1");
    assert_eq!(client.ask::<i64>("DBSIZE"), 0);
}

#[test]
fn restore_with_implausible_fence_is_refused() {
    let (_server, mut client) = start_with("rdbcompression no");
    let fence = client.acquire("door alice 60000").fence;
    let payload = dump(&mut client, "door");
    // 366 days of the clock that fences start from: 2048 a millisecond.
    let year = 366 * 24 * 60 * 60 * 1000 * 2048;
    let forged = |fence_then: u64| {
        let text = payload::text(&payload);
        let (old, new) = (leb128(fence), leb128(fence_then));
        let at = text
            .windows(old.len())
            .position(|window| window == old)
            .expect("the fence is in the value");
        payload::with_text(&payload, &[&text[..at], &new, &text[at + old.len()..]].concat())
    };
    restore(&mut client, "unchanged", &forged(fence));
    for far in [fence + 2 * year, (1 << 53) - 1] {
        client.error_code_args(&[b"RESTORE", b"gate", b"0", &forged(far)]);
        assert!(!client.exists("gate"));
        assert_eq!(
            client.acquire(&format!("lock{far} alice 60000")).fence / year,
            fence / year,
            "the counter is unchanged"
        );
    }
    let near = fence + year / 2;
    restore(&mut client, "near", &forged(near));
    assert!(client.acquire("next alice 60000").fence > near);
}

/// A number as the codec writes it.
fn leb128(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(0x80 | (number & 0x7f) as u8);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
