//! Hand-overs in the replication stream and the AOF.

use dlock_testkit::{Client, ReplicationStream, Server, Waiter, start, start_with, wait_for};
use redis::Value;

use crate::fixtures::{AOF, APPLY_DOOR, NOTHING, held_by_alice, rewrite_aof, start_with_replica};

/// alice holds `door`. The stream has what the server replicates from now on.
fn primary() -> (Server, Client, ReplicationStream) {
    let (server, client) = held_by_alice();
    let stream = ReplicationStream::attach(&server);
    (server, client, stream)
}

#[test]
fn release_and_handover_are_replicated_as_one_change() {
    let (server, mut client, mut stream) = primary();
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    client.release("door alice");
    bob.granted();
    assert_eq!(stream.take_all(), [APPLY_DOOR]);
}

#[test]
fn handover_to_several_readers_is_replicated_as_one_change() {
    let (server, mut client, mut stream) = primary();
    let mut readers: Vec<Waiter> = (0..5)
        .map(|n| server.waiter(&format!("door reader{n} 60000 SHARED BLOCK 0")))
        .collect();
    client.release("door alice");
    readers.iter_mut().for_each(|reader| _ = reader.granted());
    assert_eq!(stream.take_all(), [APPLY_DOOR]);
}

#[test]
fn expiry_and_handover_are_replicated_as_one_change() {
    let (server, mut client) = start();
    client.acquire("first alice 60000");
    let mut stream = ReplicationStream::attach(&server);
    let (mut bob, _) = server.waiter_behind(&["door alice 100"], "door bob 60000 BLOCK 0");
    bob.granted();
    let taken = stream.take_all();
    assert_eq!(taken, [APPLY_DOOR, APPLY_DOOR], "alice's grant, and bob's");
}

#[test]
fn grant_after_departed_waiter_is_replicated_alone() {
    let (server, mut client) = start();
    client.acquire("door alice 60000 SHARED");
    let mut stream = ReplicationStream::attach(&server);
    let mut writer = server.waiter("door writer 60000 BLOCK 0 REQID r1");
    let mut reader = server.waiter("door reader 60000 SHARED BLOCK 0");
    client.release("door writer REQID r1");
    writer.assert_null();
    reader.granted();
    assert_eq!(stream.take_all(), [APPLY_DOOR]);
}

#[test]
fn waiting_is_not_replicated() {
    let (server, mut client, mut stream) = primary();
    server.send_acquire("door bob 60000 BLOCK 100").assert_null();
    let mut cancelled = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    client.release("door bob REQID r1");
    cancelled.assert_null();
    server.waiter("door bob 60000 BLOCK 0").close();
    client.wait_for_queue("door", 0);
    assert_eq!(stream.take_all(), NOTHING);
}

#[test]
fn removal_is_replicated_before_following_grant() {
    for command in ["DEL door", "UNLINK door", "RENAME door away", "MOVE door 1"] {
        let (server, mut client, mut stream) = primary();
        let mut bob = server.waiter("door bob 60000 BLOCK 0");
        client.ask::<Value>(command);
        bob.granted();
        assert_eq!(stream.take_all(), [command, APPLY_DOOR]);
    }
    let (server, mut client, mut stream) = primary();
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    client.batch(&["MULTI", "DEL door", "SET door text", "DEL door", "EXEC"]);
    bob.granted();
    let expected = [
        "MULTI",
        "DEL door",
        "SET door text",
        "DEL door",
        "EXEC",
        APPLY_DOOR,
    ];
    assert_eq!(stream.take_all(), expected);
}

#[test]
fn grant_after_removal_survives_crash() {
    let breaks = [
        "DEL door",
        "UNLINK door",
        "RENAME door away",
        "MOVE door 1",
        "FLUSHALL",
        "SWAPDB 0 1",
        "PEXPIRE door 20",
    ];
    let mut server = Server::with(AOF);
    for command in breaks {
        let mut client = server.client();
        client.ask::<Value>("FLUSHALL");
        client.acquire("door alice 60000");
        let mut bob = server.waiter("door bob 60000 BLOCK 0");
        client.ask::<Value>(command);
        let fence = bob.granted().fence;
        server.crash_and_restart();
        let mut client = server.client();
        let standing = client.lock("door").standing();
        assert_eq!(standing, [("bob".into(), fence, 1)], "{command}");
        assert_eq!(client.ask::<i64>("PTTL door"), -1, "{command}");
        if command.starts_with("RENAME") {
            assert_eq!(client.owner("away").as_deref(), Some("alice"));
        }
    }
}

#[test]
fn grant_answered_before_crash_survives() {
    const ROUNDS: usize = 6;
    let mut server = Server::with(AOF);
    let mut fence = server.client().acquire("door owner0 600000").fence;
    for n in 1..=ROUNDS {
        let mut next = server.waiter(&format!("door owner{n} 600000 BLOCK 0 REQID r{n}"));
        // The reply to the release is not read: that to the waiter may come first.
        let mut releaser = server.client();
        releaser.send(&format!("DLOCK.RELEASE door owner{}", n - 1));
        let grant = next.granted();
        server.crash_and_restart();
        let mut client = server.client();
        assert!(grant.fence > fence);
        fence = grant.fence;
        let lock = client.lock("door");
        assert_eq!(lock.standing(), [(format!("owner{n}"), fence, 1)]);
        assert_eq!(lock.waiting, 0, "a restart drops waiters");
        let known = client.acquire(&format!("door owner{n} 600000 REQID r{n}"));
        assert_eq!((known.fence, known.holds), (fence, 1), "its request id is known");
    }
}

#[test]
fn grant_at_lease_end_survives_crash() {
    let mut server = Server::with(AOF);
    let (mut bob, _) = server.waiter_behind(&["door alice 100"], "door bob 600000 BLOCK 0");
    let fence = bob.granted().fence;
    server.crash_and_restart();
    server.client().assert_sole_holder("door", "bob", fence, 1);
}

#[test]
fn rolled_back_grant_stays_rolled_back_after_crash() {
    let (mut server, mut client) = start_with(AOF);
    client.acquire("door alice 60000");
    let mut bob = Waiter::connect(&server);
    let kill = format!("CLIENT KILL ID {}", bob.id());
    bob.acquire("door bob 60000 BLOCK 0");
    client.wait_for_queue("door", 1);
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    client.batch(&["DLOCK.RELEASE door alice", &kill]);
    let fence = carol.granted().fence;
    server.crash_and_restart();
    server.client().assert_sole_holder("door", "carol", fence, 1);
}

#[test]
fn aof_rewrite_keeps_holders_and_drops_waiters() {
    let (mut server, mut client) = start_with(AOF);
    client.acquire("door alice 60000");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let _carol = server.waiter("door carol 60000 BLOCK 0");
    rewrite_aof(&mut client);
    client.release("door alice");
    let fence = bob.granted().fence;
    rewrite_aof(&mut client);
    server.crash_and_restart();
    let lock = server.client().lock("door");
    assert_eq!(lock.standing(), [("bob".into(), fence, 1)]);
    assert_eq!(lock.waiting, 0);
}

#[test]
fn replica_agrees_on_each_handover() {
    let (server, _replica, mut client, mut on_replica) = start_with_replica();
    client.acquire("door owner0 60000");
    for n in 1..=5 {
        let mut next = server.waiter(&format!("door owner{n} 60000 BLOCK 0"));
        client.release(&format!("door owner{}", n - 1));
        let fence = next.granted().fence;
        client.sync();
        let lock = on_replica.lock("door");
        assert_eq!(lock.standing(), [(format!("owner{n}"), fence, 1)]);
        assert_eq!(lock.waiting, 0, "waiters are not replicated");
        assert_eq!(lock.limit, 1);
    }
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    client.ask::<i64>("DEL door");
    let fence = bob.granted().fence;
    wait_for("the replica to follow", || {
        on_replica
            .find_lock("door")
            .is_some_and(|lock| lock.standing() == [("bob".into(), fence, 1)])
    });
    assert_eq!(client.digest("door"), on_replica.digest("door"));
}
