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
