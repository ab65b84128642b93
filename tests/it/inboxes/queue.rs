//! ACQUIRE with QUEUE: what it replies, and that it waits as BLOCK does.

use dlock_testkit::{Client, Inbox, Server, start_with, wait_for};
use redis::Value;

use super::{held_with_inbox, shown};
use crate::fixtures::AOF;

#[test]
fn waiters_before_request_are_counted_up_to_thousand() {
    let (_server, mut client, _inbox) = held_with_inbox();
    let requests: Vec<String> = (0..1_003)
        .map(|n| format!("DLOCK.ACQUIRE door owner{n} 60000 QUEUE inbox 0 REQID r"))
        .collect();
    let before = |n| Value::Array(vec![Value::Int(n)]);
    let replies = client.batch(&requests);
    for (n, reply) in (0..).zip(replies) {
        assert_eq!(reply, before(n.min(1_000)), "request {n}");
    }
    let repeated = client.batch(&[&requests[2], &requests[1_002]]);
    assert_eq!(repeated, [before(2), before(1_000)], "each keeps its place");
}

#[test]
fn queued_request_blocks_no_client_and_makes_no_key() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.release("door alice");
    client.acquire("gate alice 60000");
    client.enqueue("gate bob 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(client.ask::<String>("PING"), "PONG", "the connection is free");
    assert_eq!(client.server_info("clients", "blocked_clients"), "0");
    assert_eq!(client.ask::<i64>("DBSIZE"), 1);
    client.release("gate alice");
    inbox.granted();
}

#[test]
fn many_requests_of_one_connection_wait_for_many_locks() {
    const LOCKS: usize = 50;
    let (_server, mut client, mut inbox) = held_with_inbox();
    for n in 0..LOCKS {
        client.acquire(&format!("lock{n} alice 60000"));
        client.enqueue(&format!("lock{n} bob 60000 QUEUE inbox 0 REQID r{n}"));
    }
    // In another order: answers come in the order of the grants.
    let order: Vec<usize> = (0..LOCKS).rev().collect();
    for n in &order {
        client.release(&format!("lock{n} alice"));
    }
    let expected = order.iter().map(|n| format!("granted r{n} lock{n} bob"));
    assert_eq!(shown(&inbox.take(LOCKS)), expected.collect::<Vec<_>>());
}

#[test]
fn waiting_of_ended_inbox_is_no_part_of_deadlock() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut ends = Inbox::make_with(&server, "ends", "TTL 60000");
    client.acquire("gate bob 60000");
    client.enqueue("door bob 60000 QUEUE ends 0 REQID r1");
    client.assert_error(
        "DEADLOCK",
        "DLOCK.ACQUIRE gate alice 60000 QUEUE inbox 0 REQID r1",
    );
    ends.call("TTL 0");
    client.wait_for_queue("door", 0);
    client.enqueue("gate alice 60000 QUEUE inbox 0 REQID r1");
    client.release("gate bob");
    inbox.granted();
}

#[test]
fn queue_in_grace_waits_and_is_granted_at_its_end() {
    let (server, mut client) = start_with("dlock.startup-grace-ms 3000");
    let mut inbox = Inbox::make(&server, "inbox");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door carol 60000 QUEUE inbox 20 REQID r1");
    assert!(!client.exists("door"));
    assert_eq!(shown(&inbox.take(1)), ["timeout r1 door carol"]);
    let grant = inbox.granted();
    assert_eq!((grant.holds, client.stat("dlock_grace_left_ms")), (1, 0));
    assert!(grant.queued_ms > 0 && grant.lease_ms > 50_000, "{grant:?}");
}

#[test]
fn repeated_queue_of_known_hold_is_replied_in_grace() {
    let mut server = Server::with(AOF);
    let fence = server.client().acquire("door bob 600000 REQID r1").fence;
    server.add_config("dlock.startup-grace-ms 60000");
    server.crash_and_restart();
    let mut client = server.client();
    let grant = client.acquire("door bob 600000 QUEUE nobody 0 REQID r1");
    assert_eq!((grant.fence, grant.holds), (fence, 1));
    assert!(client.stat("dlock_grace_left_ms") > 0);
}

#[test]
fn queue_with_min_fence_is_granted_with_at_least_that_fence() {
    let (server, mut client) = start_with("dlock.quorum yes");
    let fence = client.acquire("door alice 60000").fence;
    let mut inbox = Inbox::make(&server, "inbox");
    let floor = fence + 1_000;
    wait_for("a clock beyond the floor", || {
        let request = format!("DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1 MINFENCE {floor}");
        client.call(&request).is_ok()
    });
    client.release("door alice");
    assert!(inbox.granted().fence >= floor);
}

#[test]
fn queue_on_replica_is_refused() {
    let server = Server::start();
    let replica = server.replica();
    replica
        .client()
        .assert_error("READONLY", "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1");
}

#[test]
fn dlock_info_marks_queued_waiters() {
    let (server, mut client, _inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 600000 REQID r1");
    let _carol = server.waiter("door carol 60000 BLOCK 0");
    let marked = |client: &mut Client| -> Vec<(String, bool)> {
        let waiters = client.waiters("door").into_iter();
        waiters.map(|waiter| (waiter.owner, waiter.is_queued)).collect()
    };
    let expected = [("bob".to_owned(), true), ("carol".into(), false)];
    assert_eq!(marked(&mut client), expected);
    assert_eq!(marked(&mut server.client_resp3()), expected);
    assert_eq!(client.waiters("door")[0].timeout_ms, 600_000);
}
