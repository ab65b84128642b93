//! Waiters that are made to leave: each gets exactly one answer, or its connection closes.

use dlock_testkit::{Client, Reply, Server, Waiter, skip, start, wait_for};

const WAITERS: usize = 3;

/// alice holds `door`, and waiters with their client ids.
fn scene() -> (Server, Client, Vec<(Waiter, i64)>) {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let waiters = (0..WAITERS)
        .map(|n| {
            let mut waiter = Waiter::connect(&server);
            let id = waiter.id();
            waiter.acquire(&format!("door owner{n} 60000 BLOCK 0"));
            client.wait_for_queue("door", n as i64 + 1);
            (waiter, id)
        })
        .collect();
    (server, client, waiters)
}

#[track_caller]
fn wait_until_nobody_is_blocked(client: &mut Client) {
    wait_for("no blocked clients", || {
        client.server_info("clients", "blocked_clients") == "0"
    });
}

#[test]
fn client_unblock_replies_null_and_keeps_connection() {
    let (server, mut client, mut waiters) = scene();
    if !server.supports_client_unblock() {
        return skip("CLIENT UNBLOCK of waiters is disabled on Redis 7.2");
    }
    for how in ["", "TIMEOUT", "timeout"] {
        let (mut waiter, id) = waiters.remove(0);
        assert_eq!(client.ask::<i64>(&format!("CLIENT UNBLOCK {id} {how}")), 1);
        waiter.assert_null();
        assert_eq!(client.waiting("door"), waiters.len() as i64);
        // The same connection can wait again.
        waiter.acquire("door again 60000 BLOCK 10");
        waiter.assert_null();
    }
    wait_until_nobody_is_blocked(&mut client);
}

#[test]
fn client_unblock_error_replies_unblocked_and_keeps_connection() {
    let (server, mut client, mut waiters) = scene();
    if !server.supports_client_unblock() {
        return skip("CLIENT UNBLOCK of waiters is disabled on Redis 7.2");
    }
    let (mut waiter, id) = waiters.remove(1);
    assert_eq!(client.ask::<i64>(&format!("CLIENT UNBLOCK {id} ERROR")), 1);
    let error = waiter.error();
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    assert_eq!(client.queue("door"), ["owner0", "owner2"]);
    waiter.acquire("door again 60000 BLOCK 10");
    waiter.assert_null();
}

/// Where the server could not bear what may come of it.
#[test]
fn client_unblock_reaches_every_waiter_or_none() {
    let (server, mut client, mut waiters) = scene();
    let reached = i64::from(server.supports_client_unblock());
    for (_, id) in &waiters[1..] {
        assert_eq!(client.ask::<i64>(&format!("CLIENT UNBLOCK {id}")), reached);
    }
    client.release("door alice");
    waiters[0].0.granted();
}

#[test]
fn client_unblock_twice_replies_once() {
    let (server, mut client, mut waiters) = scene();
    if !server.supports_client_unblock() {
        return skip("CLIENT UNBLOCK of waiters is disabled on Redis 7.2");
    }
    let (waiter, id) = &mut waiters[0];
    let unblock = format!("CLIENT UNBLOCK {id}");
    client.batch(&[&unblock, &unblock, "DLOCK.RELEASE door alice", &unblock]);
    waiter.assert_null();
    waiters[1].0.granted();
}

/// The server may give what it knew an answered client by to the next one that waits.
#[test]
fn waiter_after_answered_waiter_can_leave() {
    let (server, mut client) = start();
    for _ in 0..10 {
        client.acquire("door alice 60000");
        let mut answered = server.waiter("door bob 60000 BLOCK 0");
        client.wait_for_queue("door", 1);
        client.release("door alice");
        answered.granted();
        let next = server.waiter("door carol 60000 BLOCK 0");
        client.wait_for_queue("door", 1);
        next.close();
        client.wait_for_queue("door", 0);
        client.release("door bob");
    }
}

#[test]
fn killed_waiter_is_closed_without_reply() {
    let (_server, mut client, mut waiters) = scene();
    let (mut waiter, id) = waiters.remove(1);
    assert_eq!(client.ask::<i64>(&format!("CLIENT KILL ID {id}")), 1);
    assert_eq!(waiter.reply(), Reply::Closed);
    assert_eq!(client.queue("door"), ["owner0", "owner2"]);
}

#[test]
fn waiter_of_deleted_user_is_closed_without_reply() {
    let (server, mut client, _waiters) = scene();
    client.ok("ACL SETUSER eve on nopass ~* +@all");
    let mut waiter = Waiter::connect(&server);
    waiter.ask("AUTH eve x");
    waiter.acquire("door eve 60000 BLOCK 0");
    client.wait_for_queue("door", WAITERS as i64 + 1);
    client.ask::<i64>("ACL DELUSER eve");
    assert_eq!(waiter.reply(), Reply::Closed);
    client.wait_for_queue("door", WAITERS as i64);
}

#[test]
fn closed_connection_leaves_queue() {
    let (_server, mut client, mut waiters) = scene();
    waiters.remove(0).0.close();
    client.wait_for_queue("door", 2);
    assert_eq!(client.queue("door"), ["owner1", "owner2"]);
    client.release("door alice");
    waiters[0].0.granted();
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn last_departed_waiter_leaves_no_state() {
    let (server, mut client, mut waiters) = scene();
    let (closes, id) = waiters.remove(0);
    closes.close();
    client.ask::<i64>(&format!("CLIENT KILL ID {}", waiters[0].1));
    if server.supports_client_unblock() {
        client.ask::<i64>(&format!("CLIENT UNBLOCK {} ERROR", waiters[1].1));
    } else {
        waiters.remove(1).0.close();
    }
    client.wait_for_queue("door", 0);
    assert_eq!(
        client.ask::<i64>(&format!("CLIENT KILL ID {id}")),
        0,
        "it is gone already"
    );
    wait_until_nobody_is_blocked(&mut client);
    assert_eq!(client.stat("dlock_waiters"), 0);
    assert_eq!(client.stat("dlock_contended_locks"), 0);
    client.release("door alice");
    assert!(!client.exists("door"));
}

#[test]
fn demotion_unblocks_all_waiters() {
    let (server, mut client, mut waiters) = scene();
    let new_primary = Server::start();
    client.ok(&format!("REPLICAOF 127.0.0.1 {}", new_primary.port()));
    for (waiter, _) in &mut waiters {
        let error = waiter.error();
        assert!(error.starts_with("UNBLOCKED "), "{error}");
    }
    server.wait_until_linked();
    wait_until_nobody_is_blocked(&mut client);
    assert_eq!(client.stat("dlock_waiters"), 0);
    assert_eq!(
        client.error_code("DLOCK.ACQUIRE door bob 60000 BLOCK 0"),
        "READONLY"
    );
}

#[test]
fn brief_demotion_leaves_no_undelivered_grant() {
    let (server, mut client, mut waiters) = scene();
    client.batch(&[
        "DLOCK.RELEASE door alice",
        "REPLICAOF 127.0.0.1 1",
        "REPLICAOF NO ONE",
    ]);
    let answers = waiters.iter_mut().map(|(waiter, _)| waiter.reply());
    let granted = answers.filter(|answer| matches!(answer, Reply::Granted(_)));
    assert!(granted.count() <= 1, "at most the one whose turn it was");
    // Whoever was granted the lock and did not hear of it does not keep it.
    let mut next = server.send_acquire("door next 60000 BLOCK 0");
    next.granted();
    assert_eq!(client.lock("door").owners(), ["next"]);
}

#[test]
fn writable_replica_refuses_blocking_acquire() {
    let server = Server::start();
    let replica = server.replica_with("replica-read-only no");
    server.client().acquire("door alice 60000");
    let mut there = replica.client();
    assert_eq!(
        there.error_code("DLOCK.ACQUIRE door bob 60000 BLOCK 0"),
        "READONLY"
    );
    assert_eq!(there.stat("dlock_waiters"), 0);
}

#[test]
fn shutdown_closes_all_waiters() {
    let (server, mut client, mut waiters) = scene();
    client.send("SHUTDOWN NOSAVE");
    for (waiter, _) in &mut waiters {
        assert_eq!(waiter.reply(), Reply::Closed);
    }
    wait_for("a good end", || server.log().contains("ready to exit, bye bye"));
}
