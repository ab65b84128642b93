//! DEL, RENAME, SET, RESTORE and others on a lock that has waiters.

use dlock_testkit::{Client, Reply, Server, Waiter, start, start_with, wait_for};
use redis::Value;

use crate::fixtures::{assert_refused, held_by_alice};

/// alice holds `door`, bob and carol wait.
fn held_with_waiters() -> (Server, Client, u64, Waiter, Waiter) {
    let (server, mut client) = start();
    let fence = client.acquire("door alice 600000").fence;
    let bob = server.waiter("door bob 60000 BLOCK 0");
    let carol = server.waiter("door carol 60000 BLOCK 0");
    (server, client, fence, bob, carol)
}

#[test]
fn removed_lock_is_granted_to_next_waiter_with_larger_fence() {
    let breaks = [
        "DEL door",
        "UNLINK door",
        "PEXPIRE door 0",
        "PEXPIRE door 40",
        "PEXPIREAT door 1",
        "RENAME door away",
        "MOVE door 1",
        "FLUSHDB SYNC",
        "FLUSHDB ASYNC",
        "FLUSHALL SYNC",
        "FLUSHALL ASYNC",
    ];
    for command in breaks {
        let (_server, mut client, fence, mut bob, carol) = held_with_waiters();
        client.ask::<Value>(command);
        let grant = bob.granted();
        assert!(grant.fence > fence, "{command}");
        let standing = client.lock("door").standing();
        assert_eq!(standing, [("bob".into(), grant.fence, 1)], "{command}");
        carol.assert_waiting();
        assert_eq!(client.queue("door"), ["carol"], "{command}");
        assert_eq!(client.ask::<i64>("PTTL door"), -1, "{command}");
    }
}

#[test]
fn overwritten_lock_refuses_all_waiters_as_wrongtype() {
    let breaks = [
        "SET door text",
        "RENAME text door",
        "COPY text door REPLACE",
        "BITOP NOT door text",
        "SORT list STORE door",
        "SUNIONSTORE door set",
    ];
    for command in breaks {
        let (_server, mut client, _, mut bob, mut carol) = held_with_waiters();
        client.batch(&["SET text value", "RPUSH list 1", "SADD set 1"]);
        client.ask::<Value>(command);
        assert_refused(&mut bob, "WRONGTYPE");
        assert_refused(&mut carol, "WRONGTYPE");
        assert_eq!(client.stat("dlock_waiters"), 0, "{command}");
        client.ask::<i64>("DEL door");
        client.acquire("door dave 60000");
    }
}

#[test]
fn key_restored_before_queue_is_processed_changes_nothing() {
    let (_server, mut client, fence, mut bob, mut carol) = held_with_waiters();
    client.batch(&["RENAME door away", "SET door text", "RENAME away door"]);
    client.release("door alice REQID none");
    bob.assert_waiting();
    client.assert_sole_holder("door", "alice", fence, 1);
    client.release("door alice");
    bob.granted();
    carol.assert_waiting();
    client.release("door bob");
    carol.granted();
}

#[test]
fn next_waiter_is_granted_before_command_after_removal() {
    let (_server, mut client, fence, mut bob, _carol) = held_with_waiters();
    let replies = client.batch(&["DEL door", "DLOCK.ACQUIRE door dave 60000", "DLOCK.OWNER door"]);
    let expected = [Value::Nil, Value::BulkString(b"bob".to_vec())];
    assert_eq!(replies[1..], expected, "no overtaking");
    assert!(bob.granted().fence > fence);
}

#[test]
fn old_holder_is_refused_after_removal() {
    let (_server, mut client, fence, mut bob, _carol) = held_with_waiters();
    let replies = client.batch(&[
        "DEL door",
        "DLOCK.RELEASE door alice",
        &format!("DLOCK.EXTEND door alice 60000 FENCE {fence}"),
    ]);
    for reply in &replies[1..] {
        assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    }
    bob.granted();
}

#[test]
fn waiters_wait_for_lock_renamed_onto_key() {
    let (_server, mut client, _, mut bob, carol) = held_with_waiters();
    let fence = client.acquire("gate dave 60000").fence;
    client.ok("RENAME gate door");
    wait_for("the new lock", || client.owner("door").as_deref() == Some("dave"));
    // Commands of the module process the queue first.
    assert_eq!(client.try_acquire("door eve 60000"), None);
    bob.assert_waiting();
    client.assert_sole_holder("door", "dave", fence, 1);
    client.release("door dave");
    bob.granted();
    carol.assert_waiting();
}

#[test]
fn lease_of_lock_renamed_onto_key_wakes_waiter() {
    let (_server, mut client, _, mut bob, _carol) = held_with_waiters();
    client.batch(&["DLOCK.ACQUIRE gate dave 100", "RENAME gate door"]);
    bob.granted();
}

#[test]
fn old_lease_does_not_expire_lock_renamed_onto_key() {
    let (server, mut client) = start();
    client.acquire("gate dave 60000");
    let (mut bob, _) = server.waiter_behind(&["door alice 1500"], "door bob 60000 BLOCK 2500");
    client.ok("RENAME gate door");
    bob.assert_null();
    assert_eq!(client.lock("door").owners(), ["dave"]);
}

#[test]
fn waiter_is_granted_when_renamed_lock_has_room() {
    let (server, mut client) = held_by_alice();
    let mut reader = server.waiter("door reader 60000 SHARED BLOCK 0");
    let writer = server.waiter("door writer 60000 BLOCK 0");
    client.acquire("gate dave 60000 SHARED");
    client.ok("RENAME gate door");
    reader.granted();
    writer.assert_waiting();
    assert_eq!(client.lock("door").owners(), ["dave", "reader"]);
}

#[test]
fn waiters_stay_with_key_when_lock_is_renamed_away() {
    let (server, mut client, fence, mut bob, _carol) = held_with_waiters();
    client.ok("RENAME door gate");
    bob.granted();
    client.assert_sole_holder("gate", "alice", fence, 1);
    let mut at_gate = server.waiter("gate eve 60000 BLOCK 0");
    client.release("gate alice");
    at_gate.granted();
}

#[test]
fn waiters_wait_for_lock_restored_onto_key() {
    let (_server, mut client, _, mut bob, _carol) = held_with_waiters();
    client.acquire("gate dave 60000");
    let dump: Vec<u8> = client.ask("DUMP gate");
    client.ask::<i64>("DEL gate");
    client.ask_args::<Value>(&[b"RESTORE", b"door", b"0", &dump, b"REPLACE"]);
    assert_eq!(client.try_acquire("door eve 60000"), None);
    bob.assert_waiting();
    assert_eq!(client.lock("door").owners(), ["dave"]);
    client.release("door dave");
    bob.granted();
}

#[test]
fn restore_of_another_type_refuses_waiters_as_wrongtype() {
    let (_server, mut client, _, mut bob, mut carol) = held_with_waiters();
    client.ok("SET text value");
    let dump: Vec<u8> = client.ask("DUMP text");
    client.ask_args::<Value>(&[b"RESTORE", b"door", b"0", &dump, b"REPLACE"]);
    assert_refused(&mut bob, "WRONGTYPE");
    assert_refused(&mut carol, "WRONGTYPE");
}

#[test]
fn waiters_survive_debug_reload() {
    let (_server, mut client, fence, mut bob, mut carol) = held_with_waiters();
    client.ok("DEBUG RELOAD");
    client.assert_sole_holder("door", "alice", fence, 1);
    assert_eq!(client.try_acquire("door eve 60000"), None);
    bob.assert_waiting();
    client.release("door alice");
    assert!(bob.granted().fence > fence);
    client.release("door bob");
    carol.granted();
}

#[test]
fn lease_wakes_waiter_after_debug_reload() {
    let (server, mut client) = start();
    let (mut bob, _) = server.waiter_behind(&["door alice 600"], "door bob 60000 BLOCK 0");
    client.ok("DEBUG RELOAD");
    bob.granted();
}

#[test]
fn evicted_lock_is_handed_over() {
    let (server, mut client) = start_with("maxmemory-policy volatile-random");
    let fence = client.acquire("door alice 600000").fence;
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    client.ask::<i64>("PEXPIRE door 600000");
    client.config_set("maxmemory", "1");
    wait_for("the eviction", || {
        // Whether or not it refuses this write, the server evicts all it can.
        let _ = client.call("SET text value");
        client.owner("door").as_deref() != Some("alice")
    });
    let grant = bob.granted();
    assert!(grant.fence > fence, "even when out of memory");
    assert_eq!(client.lock("door").owners(), ["bob"]);
}

#[test]
fn copy_onto_waited_key_is_refused() {
    let (_server, mut client, fence, mut bob, _carol) = held_with_waiters();
    client.acquire("gate dave 60000");
    client.error_code("COPY gate door REPLACE");
    client.assert_sole_holder("door", "alice", fence, 1);
    assert_eq!(client.waiting("door"), 2);
    client.release("door alice");
    bob.granted();
}

#[test]
fn removal_in_transaction_grants_after_exec() {
    let (_server, mut client, _, mut bob, mut carol) = held_with_waiters();
    client.batch(&["MULTI", "DEL door", "SET door text", "DEL door", "EXEC"]);
    bob.granted();
    client.batch(&["MULTI", "DEL door", "SET door text", "EXEC"]);
    match carol.reply() {
        Reply::Error(error) => assert!(error.starts_with("WRONGTYPE "), "{error}"),
        other => panic!("{other:?}"),
    }
}
