//! Waiters that are removed: each gets exactly one reply, or its connection closes.

use dlock_testkit::{Client, Reply, Server, Waiter, skip, start, wait_for};

use crate::fixtures::{assert_refused, held_by_alice, wait_until_none_blocked};

const WAITERS: usize = 3;

/// alice holds `door`, and waiters with their client ids.
fn held_with_waiters() -> (Server, Client, Vec<(Waiter, i64)>) {
    let (server, mut client) = held_by_alice();
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

#[test]
fn client_unblock_replies_null_and_keeps_connection() {
    let (server, mut client, mut waiters) = held_with_waiters();
    if !server.supports_client_unblock() {
        return skip("CLIENT UNBLOCK of waiters is disabled on Redis 7.2");
    }
    for how in ["", "TIMEOUT", "timeout"] {
        let (mut waiter, id) = waiters.remove(0);
        assert_eq!(client.ask::<i64>(&format!("CLIENT UNBLOCK {id} {how}")), 1);
        waiter.assert_null();
        assert_eq!(client.waiting("door"), waiters.len() as i64);
        // The same connection can block again.
        waiter.acquire("door again 60000 BLOCK 10");
        waiter.assert_null();
    }
    wait_until_none_blocked(&mut client);
}

#[test]
fn client_unblock_error_replies_unblocked_and_keeps_connection() {
    let (server, mut client, mut waiters) = held_with_waiters();
    if !server.supports_client_unblock() {
        return skip("CLIENT UNBLOCK of waiters is disabled on Redis 7.2");
    }
    let (mut waiter, id) = waiters.remove(1);
    assert_eq!(client.ask::<i64>(&format!("CLIENT UNBLOCK {id} ERROR")), 1);
    assert_refused(&mut waiter, "UNBLOCKED");
    assert_eq!(client.queue("door"), ["owner0", "owner2"]);
    waiter.acquire("door again 60000 BLOCK 10");
    waiter.assert_null();
}

/// Not on Redis 7.2, which would crash.
#[test]
fn client_unblock_reaches_every_waiter_or_none() {
    let (server, mut client, mut waiters) = held_with_waiters();
    let reached = i64::from(server.supports_client_unblock());
    for (_, id) in &waiters[1..] {
        assert_eq!(client.ask::<i64>(&format!("CLIENT UNBLOCK {id}")), reached);
    }
    client.release("door alice");
    waiters[0].0.granted();
}

#[test]
fn client_unblock_twice_replies_once() {
    let (server, mut client, mut waiters) = held_with_waiters();
    if !server.supports_client_unblock() {
        return skip("CLIENT UNBLOCK of waiters is disabled on Redis 7.2");
    }
    let (waiter, id) = &mut waiters[0];
    let unblock = format!("CLIENT UNBLOCK {id}");
    client.batch(&[&unblock, &unblock, "DLOCK.RELEASE door alice", &unblock]);
    waiter.assert_null();
    waiters[1].0.granted();
}

/// The server may reuse the handle of an answered client for the next one that blocks.
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
    let (_server, mut client, mut waiters) = held_with_waiters();
    let (mut waiter, id) = waiters.remove(1);
    assert_eq!(client.ask::<i64>(&format!("CLIENT KILL ID {id}")), 1);
    assert_eq!(waiter.reply(), Reply::Closed);
    assert_eq!(client.queue("door"), ["owner0", "owner2"]);
}

#[test]
fn waiter_of_deleted_user_is_closed_without_reply() {
    let (server, mut client, _waiters) = held_with_waiters();
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
    let (_server, mut client, mut waiters) = held_with_waiters();
    waiters.remove(0).0.close();
    client.wait_for_queue("door", 2);
    assert_eq!(client.queue("door"), ["owner1", "owner2"]);
    client.release("door alice");
    waiters[0].0.granted();
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn last_departed_waiter_leaves_no_state() {
    let (server, mut client, mut waiters) = held_with_waiters();
    let (closes, id) = waiters.remove(0);
    closes.close();
    client.ask::<i64>(&format!("CLIENT KILL ID {}", waiters[0].1));
    if server.supports_client_unblock() {
        client.ask::<i64>(&format!("CLIENT UNBLOCK {} ERROR", waiters[1].1));
    } else {
        waiters.remove(1).0.close();
    }
    client.wait_for_queue("door", 0);
    let reply = client.ask::<i64>(&format!("CLIENT KILL ID {id}"));
    assert_eq!(reply, 0, "the client is gone");
    wait_until_none_blocked(&mut client);
    assert_eq!(client.stat("dlock_waiters"), 0);
    assert_eq!(client.stat("dlock_contended_locks"), 0);
    client.release("door alice");
    assert!(!client.exists("door"));
}

#[test]
fn demotion_unblocks_all_waiters() {
    let (server, mut client, mut waiters) = held_with_waiters();
    let new_primary = Server::start();
    client.ok(&format!("REPLICAOF 127.0.0.1 {}", new_primary.port()));
    for (waiter, _) in &mut waiters {
        assert_refused(waiter, "UNBLOCKED");
    }
    server.wait_until_linked();
    wait_until_none_blocked(&mut client);
    assert_eq!(client.stat("dlock_waiters"), 0);
    client.assert_error("READONLY", "DLOCK.ACQUIRE door bob 60000 BLOCK 0");
}

#[test]
fn brief_demotion_leaves_no_undelivered_grant() {
    let (server, mut client, mut waiters) = held_with_waiters();
    client.batch(&[
        "DLOCK.RELEASE door alice",
        "REPLICAOF 127.0.0.1 1",
        "REPLICAOF NO ONE",
    ]);
    let replies = waiters.iter_mut().map(|(waiter, _)| waiter.reply());
    let granted = replies.filter(|reply| matches!(reply, Reply::Granted(_)));
    assert!(granted.count() <= 1, "at most the first waiter");
    // A grant that was not delivered is rolled back.
    let mut next = server.send_acquire("door next 60000 BLOCK 0");
    next.granted();
    assert_eq!(client.lock("door").owners(), ["next"]);
}

#[test]
fn writable_replica_refuses_blocking_acquire() {
    let server = Server::start();
    let replica = server.replica_with("replica-read-only no");
    server.client().acquire("door alice 60000");
    let mut on_replica = replica.client();
    on_replica.assert_error("READONLY", "DLOCK.ACQUIRE door bob 60000 BLOCK 0");
    assert_eq!(on_replica.stat("dlock_waiters"), 0);
}

#[test]
fn shutdown_closes_all_waiters() {
    let (server, mut client, mut waiters) = held_with_waiters();
    client.send("SHUTDOWN NOSAVE");
    for (waiter, _) in &mut waiters {
        assert_eq!(waiter.reply(), Reply::Closed);
    }
    wait_for("a clean shutdown", || {
        server.log().contains("ready to exit, bye bye")
    });
}
