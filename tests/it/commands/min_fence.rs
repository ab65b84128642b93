//! MINFENCE: the fences of locks over several independent servers.

use dlock_testkit::{Client, Server, start, start_with};

use crate::fixtures::{AOF, rewrite_aof};

/// How many fences of its clock a server has in a millisecond.
const FENCES_PER_MS: u64 = 2048;

/// A server of a quorum, and a client of it.
fn start_quorum(lines: &str) -> (Server, Client) {
    let (server, mut client) = start_with(&format!("dlock.quorum yes\n{lines}"));
    allow_ahead_of_clock(&mut client);
    (server, client)
}

/// The clock of the server has whole milliseconds: the next fence is ahead of it until the next one begins.
fn allow_ahead_of_clock(client: &mut Client) {
    client.config_set("dlock.startup-grace-ms", "1000");
}

/// A server of a quorum, a client of it, and the fence of the first grant, of `first`.
fn quorum() -> (Server, Client, u64) {
    let (server, mut client) = start_quorum("");
    let first = client.acquire("first alice 60000").fence;
    (server, client, first)
}

/// Acquires `key` with that minimum and releases it: its fence.
fn fence(client: &mut Client, key: &str, min: u64) -> u64 {
    let grant = client.acquire(&format!("{key} alice 60000 MINFENCE {min}"));
    client.release(&format!("{key} alice"));
    grant.fence
}

/// alice holds `door`, under request id `r1`, with a raised fence: that one.
fn hold_with_raised_fence(client: &mut Client) -> u64 {
    let raised = client.acquire("door alice 600000 REQID r1").fence + 100;
    client.extend(&format!("door alice 600000 REQID r1 MINFENCE {raised}"));
    raised
}

#[test]
fn min_fence_without_quorum_setting_is_refused() {
    let (_server, mut client) = start();
    client.assert_error("ERR", "DLOCK.ACQUIRE door alice 1000 MINFENCE 1");
    client.assert_error("ERR", "DLOCK.ACQUIRE door alice 1000 BLOCK 10 MINFENCE 1");
    assert!(!client.exists("door"));
    client.acquire("door alice 60000");
    let before = client.lock("door").standing();
    client.assert_error("ERR", "DLOCK.ACQUIRE door alice 1000 MINFENCE 1");
    client.assert_error("ERR", "DLOCK.EXTEND door alice 1000 MINFENCE 9007199254740991");
    assert_eq!(client.lock("door").standing(), before);
    client.config_set("dlock.quorum", "yes");
    assert_eq!(client.acquire("door alice 1000 MINFENCE 1").holds, 2);
}

#[test]
fn new_grant_has_minimum_or_next_fence_of_its_name() {
    let (_server, mut client, first) = quorum();
    assert_eq!(fence(&mut client, "door", first + 100), first + 100);
    let next_fence = fence(&mut client, "door", first + 50);
    assert_eq!(next_fence, first + 101, "above the last one");
    let next_fence = fence(&mut client, "gate", first + 50);
    assert_eq!(next_fence, first + 50, "of another name");
    let ordinary = client.acquire("gate bob 60000").fence;
    assert_eq!(ordinary, first + 102, "above all without a minimum");
}

#[test]
fn reentry_and_repeated_reqid_ignore_min_fence() {
    let (_server, mut client, first) = quorum();
    for request in [
        "first alice 60000 REQID r1",
        "first alice 60000 REQID r1",
        "first alice 60000",
    ] {
        let again = client.acquire(&format!("{request} MINFENCE {}", first + 100));
        assert_eq!(again.fence, first);
    }
}

#[test]
fn min_fence_beyond_clock_and_startup_grace_is_refused() {
    let (_server, mut client, first) = quorum();
    let ahead = first + 3_600_000 * FENCES_PER_MS;
    let acquire = format!("DLOCK.ACQUIRE door alice 60000 MINFENCE {ahead}");
    let extend = format!("DLOCK.EXTEND first alice 60000 MINFENCE {ahead}");
    client.assert_error("ERR", &acquire);
    client.assert_error("ERR", &extend);
    assert!(!client.exists("door"));
    client.assert_sole_holder("first", "alice", first, 1);
    client.config_set("dlock.startup-grace-ms", "7200000");
    client.ask::<u64>(&extend);
    assert_eq!(fence(&mut client, "door", ahead), ahead);
    client.config_set("dlock.startup-grace-ms", "0");
    let next_fence = fence(&mut client, "gate", ahead);
    assert_eq!(next_fence, ahead, "up to the counter in any case");
}

#[test]
fn waiter_keeps_its_largest_min_fence() {
    let (server, mut client, first) = quorum();
    let mut lost = server.waiter(&format!(
        "first bob 60000 BLOCK 0 REQID r1 MINFENCE {}",
        first + 200
    ));
    let mut bob = server.send_acquire(&format!(
        "first bob 60000 BLOCK 0 REQID r1 MINFENCE {}",
        first + 100
    ));
    lost.error();
    client.release("first alice");
    assert_eq!(bob.granted().fence, first + 200);
}

#[test]
fn extend_raises_fence_of_sole_holder() {
    let (_server, mut client, first) = quorum();
    client.acquire("first alice 60000 REQID r1");
    let raise = |fence: u64| format!("first alice 60000 REQID r1 MINFENCE {fence}");
    for _ in 0..2 {
        client.extend(&raise(first + 100));
        client.assert_sole_holder("first", "alice", first + 100, 2);
    }
    assert_eq!(client.stat("dlock_fences_raised"), 1, "repeating is harmless");
    client.assert_error("STALE", &format!("DLOCK.EXTEND {}", raise(first + 99)));
    client.assert_sole_holder("first", "alice", first + 100, 2);
    assert_eq!(client.acquire("other alice 1000").fence, first + 101);
    client.release("first alice ALL");
    let next_fence = fence(&mut client, "first", 1);
    assert_eq!(next_fence, first + 101, "above the raised one");
}

#[test]
fn extend_raises_no_shared_fence() {
    let (_server, mut client, first) = quorum();
    for (key, limit) in [("readers", "SHARED"), ("pool", "LIMIT 2")] {
        client.acquire(&format!("{key} alice 60000 {limit}"));
        let before = client.lock(key).standing();
        client.assert_error(
            "ERR",
            &format!("DLOCK.EXTEND {key} alice 60000 MINFENCE {}", first + 100),
        );
        assert_eq!(client.lock(key).standing(), before);
    }
}

#[test]
fn raised_fence_survives_reload_and_restart_from_aof() {
    let (mut server, mut client) = start_quorum(AOF);
    let raised = hold_with_raised_fence(&mut client);
    client.ok("DEBUG RELOAD");
    client.assert_sole_holder("door", "alice", raised, 1);
    server.crash_and_restart();
    client = server.client();
    client.assert_sole_holder("door", "alice", raised, 1);
    rewrite_aof(&mut client);
    server.crash_and_restart();
    client = server.client();
    client.assert_sole_holder("door", "alice", raised, 1);
}

#[test]
fn raised_fence_reaches_replica_and_outlives_promotion() {
    let (primary, mut client) = start_quorum("");
    let replica = primary.replica_with("dlock.quorum yes");
    let raised = hold_with_raised_fence(&mut client);
    let low = fence(&mut client, "gate", raised - 50);
    client.sync();
    let mut on_replica = replica.client();
    on_replica.assert_sole_holder("door", "alice", raised, 1);
    assert_eq!(on_replica.digest("door"), client.digest("door"));
    on_replica.ok("REPLICAOF NO ONE");
    let is_expected = fence(&mut on_replica, "gate", low) > raised;
    assert!(is_expected, "a promotion is a floor for all names");
}

/// Why `dlock.quorum` is not for servers with replicas.
#[test]
fn min_fence_carries_old_primary_past_promoted_replica() {
    let (primary, mut client) = start_with("dlock.quorum yes");
    let replica = primary.replica();
    client.config_set("dlock.startup-grace-ms", "3600000");
    client.acquire("door alice 60000");
    client.sync();
    let mut promoted = replica.client();
    promoted.ok("REPLICAOF NO ONE");
    promoted.release("door alice");
    let later = promoted.acquire("door bob 60000").fence;
    client.release("door alice");
    assert!(client.acquire("door carol 60000").fence < later, "as always");
    client.release("door carol");
    assert!(fence(&mut client, "door", later + 1) > later);
}

#[test]
fn fences_with_minimum_rise_over_restarts() {
    for lines in ["", AOF] {
        let (mut server, mut client) = start_quorum(lines);
        let mut last = fence(&mut client, "door", 1);
        for _ in 0..3 {
            last = fence(&mut client, "door", last + 100);
            server.crash_and_restart();
            client = server.client();
            allow_ahead_of_clock(&mut client);
            let next = fence(&mut client, "door", 1);
            assert!(next > last, "{next} after {last}");
            last = next;
        }
    }
}

#[test]
fn restored_fence_is_a_floor_for_all_names() {
    let (_server, mut client, first) = quorum();
    let payload: Vec<u8> = client.ask_args(&[b"DUMP", b"first"]);
    // Neither the bucket of the other name nor the floor of the start has this number.
    client.release("first alice");
    client.ask_args::<String>(&[b"RESTORE", b"gate", b"0", &payload]);
    client.ask::<i64>("DEL gate");
    assert_eq!(fence(&mut client, "gate", 1), first + 1);
}
