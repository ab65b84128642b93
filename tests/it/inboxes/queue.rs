//! ACQUIRE with QUEUE: what it replies, and that it waits as BLOCK does.

use dlock_testkit::{Client, Inbox, Server, Waiter, start, start_with, wait_for};
use redis::Value;

use super::{held_with_inbox, shown};
use crate::fixtures::AOF;

#[test]
fn queue_on_free_lock_is_granted_at_once_without_inbox() {
    let (_server, mut client) = start();
    let grant = client.acquire("door bob 60000 QUEUE nobody 0 REQID r1");
    assert_eq!((grant.holds, grant.lease_ms, grant.waited_ms), (1, 60_000, 0));
    let again = client.acquire("door bob 60000 QUEUE nobody 0 REQID r2");
    assert_eq!((again.holds, again.fence), (2, grant.fence), "a re-entry");
    assert_eq!(client.stat("dlock_inboxes"), 0);
    client.assert_sole_holder("door", "bob", grant.fence, 2);
}

#[test]
fn grant_at_once_is_not_answered_through_inbox() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.acquire("gate bob 60000 QUEUE inbox 0 REQID r1");
    client.acquire("gate bob 60000 QUEUE inbox 0 REQID r1");
    inbox.assert_empty();
    assert_eq!(client.stat("dlock_inbox_answers"), 0);
}

#[test]
fn queued_request_is_replied_number_of_waiters_before_it() {
    let (server, mut client, mut inbox) = held_with_inbox();
    assert_eq!(client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1"), 0);
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    assert_eq!(client.enqueue("door dave 60000 QUEUE inbox 0 REQID r2"), 2);
    assert_eq!(client.enqueue("door bob 60000 QUEUE inbox 0 REQID r3"), 3);
    client.acquire("gate alice 60000");
    let before = client.enqueue("gate bob 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(before, 0, "each lock has its own queue");
    client.release("door alice");
    assert_eq!(
        shown(&inbox.take(2)),
        ["granted r1 door bob", "granted r3 door bob"]
    );
    carol.assert_waiting();
    client.release("door bob ALL");
    carol.granted();
}

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
fn queue_needs_reqid() {
    let (_server, mut client, _inbox) = held_with_inbox();
    for key in ["door", "free"] {
        client.assert_error("ERR", &format!("DLOCK.ACQUIRE {key} bob 60000 QUEUE inbox 0"));
    }
    assert_eq!(client.waiting("door"), 0);
    assert!(!client.exists("free"));
}

#[test]
fn queue_and_block_exclude_each_other() {
    let (_server, mut client, _inbox) = held_with_inbox();
    for options in ["QUEUE inbox 0 BLOCK 0", "BLOCK 0 QUEUE inbox 0"] {
        client.assert_error("ERR", &format!("DLOCK.ACQUIRE door bob 60000 {options} REQID r1"));
        client.assert_error("ERR", &format!("DLOCK.ACQUIRE free bob 60000 {options} REQID r1"));
    }
    assert_eq!(client.waiting("door"), 0);
    assert!(!client.exists("free"));
}

#[test]
fn queue_options_come_in_any_order_and_case() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 reqid r1 queue inbox 0 shared");
    client.enqueue("door carol 60000 Queue inbox 600000 Limit 3 ReqId r1");
    let waiters = client.waiters("door");
    assert_eq!((waiters[0].limit, waiters[0].timeout_ms), (-1, -1));
    assert_eq!((waiters[1].limit, waiters[1].timeout_ms), (3, 600_000));
    client.release("door alice");
    assert_eq!(
        shown(&inbox.take(2)),
        ["granted r1 door bob", "granted r1 door carol"]
    );
}

#[test]
fn queue_without_inbox_is_refused_and_makes_none() {
    let (_server, mut client, _inbox) = held_with_inbox();
    let error = client.error("DLOCK.ACQUIRE door bob 60000 QUEUE other 0 REQID r1");
    assert!(error.starts_with("NOINBOX "), "{error}");
    assert_eq!(client.waiting("door"), 0);
    assert_eq!(client.stat("dlock_inboxes"), 1);
    assert_eq!(client.stat("dlock_errors_noinbox"), 1);
}

#[test]
fn queue_on_key_of_another_type_is_refused() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.ok("SET text value");
    client.assert_error("WRONGTYPE", "DLOCK.ACQUIRE text bob 60000 QUEUE inbox 0 REQID r1");
    inbox.assert_empty();
}

#[test]
fn stricter_reentry_by_queue_is_refused_at_once() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.acquire("pool bob 60000 LIMIT 3");
    client.acquire("pool carol 60000 LIMIT 3");
    client.assert_error("ERR", "DLOCK.ACQUIRE pool bob 60000 QUEUE inbox 0 REQID r1");
    inbox.assert_empty();
}

#[test]
fn queue_and_block_wait_in_one_order() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut blocked = Vec::new();
    for n in 0..6 {
        if n % 2 == 0 {
            client.enqueue(&format!("door owner{n} 60000 QUEUE inbox 0 REQID r{n}"));
        } else {
            blocked.push(server.waiter(&format!("door owner{n} 60000 BLOCK 0")));
        }
    }
    let order: Vec<String> = (0..6).map(|n| format!("owner{n}")).collect();
    assert_eq!(client.queue("door"), order);
    client.release("door alice");
    let mut fence = 0;
    for n in 0..6 {
        assert_eq!(client.owner("door"), Some(order[n].clone()));
        let granted = if n % 2 == 0 {
            inbox.granted().fence
        } else {
            blocked[n / 2].granted().fence
        };
        assert!(granted > fence);
        fence = granted;
        client.release(&format!("door owner{n}"));
    }
    assert!(!client.exists("door"));
}

#[test]
fn queued_writer_is_not_overtaken_by_readers() {
    let (server, mut client) = start();
    let mut inbox = Inbox::make(&server, "inbox");
    client.acquire("door alice 60000 SHARED");
    client.enqueue("door writer 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(
        client.enqueue("door reader 60000 SHARED QUEUE inbox 0 REQID r2"),
        1
    );
    assert_eq!(client.try_acquire("door other 60000 SHARED"), None);
    inbox.assert_empty();
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door writer"]);
    client.release("door writer");
    assert_eq!(shown(&inbox.take(1)), ["granted r2 door reader"]);
}

#[test]
fn queued_requests_join_within_their_limits() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    for (owner, options) in [("bob", "LIMIT 2"), ("carol", "LIMIT 2"), ("dave", "LIMIT 2")] {
        client.enqueue(&format!("door {owner} 60000 {options} QUEUE inbox 0 REQID r1"));
    }
    client.release("door alice");
    assert_eq!(
        shown(&inbox.take(2)),
        ["granted r1 door bob", "granted r1 door carol"]
    );
    inbox.assert_empty();
    assert_eq!(client.queue("door"), ["dave"]);
}

#[test]
fn owners_other_queued_requests_become_reentries() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 LIMIT 2 QUEUE inbox 0 REQID r1");
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door bob 60000 SHARED QUEUE inbox 0 REQID r2");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r3");
    client.release("door alice");
    let answers = inbox.take(3);
    let mut words = shown(&answers);
    words.sort();
    let expected = [
        "error r3 door bob ERR",
        "granted r1 door bob",
        "granted r2 door bob",
    ];
    assert_eq!(words, expected, "the third has a stricter limit");
    let holds = client.lock("door").holder("bob").holds;
    assert_eq!(holds, 2);
    assert_eq!(client.queue("door"), ["carol"]);
}

#[test]
fn deadlock_is_replied_to_queue_itself() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.acquire("gate bob 60000");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    let error = client.error("DLOCK.ACQUIRE gate alice 60000 QUEUE inbox 0 REQID r2");
    assert!(error.starts_with("DEADLOCK "), "{error}");
    assert!(error.contains("alice waits for bob"), "{error}");
    assert_eq!(client.waiting("gate"), 0, "nothing is queued");
    assert_eq!(client.stat("dlock_errors_deadlock"), 1);
    inbox.assert_empty();
    client.release("door alice");
    inbox.granted();
}

#[test]
fn deadlock_between_queue_and_block_is_refused() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.acquire("gate bob 60000");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    client.assert_error(
        "DEADLOCK",
        "DLOCK.ACQUIRE gate alice 60000 QUEUE inbox 0 REQID r1",
    );
    client.release("door alice");
    bob.granted();
    client.acquire("hall carol 60000");
    client.enqueue("hall bob 60000 QUEUE inbox 0 REQID r1");
    client.assert_error("DEADLOCK", "DLOCK.ACQUIRE gate carol 60000 BLOCK 0");
    inbox.assert_empty();
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
fn lease_end_serves_queued_request() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.batch(&[
        "DLOCK.ACQUIRE gate alice 500",
        "DLOCK.ACQUIRE gate bob 60000 QUEUE inbox 0 REQID r1",
    ]);
    let grant = inbox.granted();
    assert_eq!(client.owner("gate").as_deref(), Some("bob"));
    assert!(grant.queued_ms >= 300, "{grant:?}");
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
fn departed_requester_does_not_end_waiting() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut requester = Waiter::connect(&server);
    requester.ask("DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1");
    let id = requester.id();
    requester.close();
    wait_for("the end of the connection", || {
        !client.ask::<String>("CLIENT LIST").contains(&format!("id={id} "))
    });
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
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
