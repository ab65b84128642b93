//! Waiting through inboxes in INFO.

use dlock_testkit::{Client, Inbox, Waiter, pause, wait_for};

use super::{enqueue_many, held_with_inbox, shown};

/// Inboxes, all waiters, those of inboxes, answers that are not acknowledged.
#[track_caller]
fn assert_gauges(client: &mut Client, expected: [i64; 4]) {
    let fields = [
        "dlock_inboxes",
        "dlock_waiters",
        "dlock_waiters_queued",
        "dlock_inbox_answers",
    ];
    let gauges = fields.map(|field| client.stat(field));
    assert_eq!(gauges, expected, "{fields:?}");
}

#[test]
fn gauges_count_inboxes_waiters_and_unacknowledged_answers() {
    let (server, mut client, mut inbox) = held_with_inbox();
    assert_gauges(&mut client, [1, 0, 0, 0]);
    let mut other = Inbox::make(&server, "other");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door carol 60000 QUEUE other 0 REQID r1");
    let mut dave = server.waiter("door dave 60000 BLOCK 0");
    assert_gauges(&mut client, [2, 3, 2, 0]);
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    assert_gauges(&mut client, [2, 3, 2, 0]);
    client.release("door alice");
    assert_gauges(&mut client, [2, 2, 1, 1]);
    inbox.granted();
    assert_gauges(&mut client, [2, 2, 1, 1]);
    inbox.assert_empty();
    assert_gauges(&mut client, [2, 2, 1, 0]);
    client.release("door carol REQID r1");
    assert_gauges(&mut client, [2, 1, 0, 1]);
    client.release("door bob");
    dave.granted();
    other.call("TTL 0");
    client.wait_for_inboxes(1);
    inbox.call("TTL 0");
    client.wait_for_inboxes(0);
    assert_gauges(&mut client, [0, 0, 0, 0]);
    assert_eq!(client.stat("dlock_inboxes_ended"), 2);
}

#[test]
fn replaced_waiters_count_as_what_replaced_them() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut bob = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    assert_gauges(&mut client, [1, 1, 0, 0]);
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    assert!(bob.error().starts_with("UNBLOCKED "));
    assert_gauges(&mut client, [1, 1, 1, 0]);
    let mut bob = server.send_acquire("door bob 60000 BLOCK 0 REQID r1");
    assert_eq!(shown(&inbox.take(1)), ["error r1 door bob UNBLOCKED"]);
    assert_gauges(&mut client, [1, 1, 0, 1]);
    client.release("door alice");
    bob.granted();
    assert_gauges(&mut client, [1, 0, 0, 1]);
}

#[test]
fn counters_tell_how_queued_requests_ended() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    let counters = |client: &mut Client| {
        [
            "dlock_acquired",
            "dlock_reentered",
            "dlock_grants_from_queue",
            "dlock_wait_timeouts",
            "dlock_not_granted",
        ]
        .map(|field| client.stat(field))
    };
    assert_eq!(counters(&mut client), [1, 0, 0, 0, 0]);
    client.enqueue("door bob 60000 QUEUE inbox 20 REQID r1");
    inbox.take(1);
    assert_eq!(counters(&mut client)[..4], [1, 0, 0, 1]);
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r2");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r3");
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    let queued_ms: u64 = inbox.take(2).iter().map(|answer| answer.grant().queued_ms).sum();
    assert_eq!(counters(&mut client)[2..4], [2, 1]);
    assert_eq!(client.stat("dlock_waited_ms"), queued_ms.cast_signed());
    client.release("door carol REQID r1");
    client.acquire("free bob 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(counters(&mut client)[2..4], [2, 1]);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn rolled_back_grants_of_both_kinds_are_counted() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.batch(&[
        format!("DLOCK.GRANTS inbox {} TTL 100", inbox.cursor()),
        "DLOCK.RELEASE door alice".into(),
    ]);
    client.wait_for_inboxes(0);
    wait_for("the first rollback", || {
        client.stat("dlock_grants_rolled_back") == 1
    });
    inbox.reconnect(&server);
    client.acquire("door alice 60000");
    let mut blocked = Waiter::connect(&server);
    let kill = format!("CLIENT KILL ID {}", blocked.id());
    blocked.acquire("door carol 60000 BLOCK 0");
    client.wait_for_queue("door", 1);
    client.batch(&["DLOCK.RELEASE door alice", &kill]);
    wait_for("the second rollback", || {
        client.stat("dlock_grants_rolled_back") == 2
    });
}

#[test]
fn only_reader_is_a_blocked_client() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    enqueue_many(&mut client, "door", 50, "");
    let blocked = |client: &mut Client| client.server_info("clients", "blocked_clients");
    assert_eq!(blocked(&mut client), "0");
    inbox.block(&mut client);
    assert_eq!(blocked(&mut client), "1");
}

#[test]
fn longest_wait_counts_queued_requests() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    pause(150);
    assert!(client.stat("dlock_longest_wait_ms") >= 150);
    assert_eq!(client.stat("dlock_contended_locks"), 1);
    client.release("door alice");
    inbox.granted();
    assert_eq!(client.stat("dlock_longest_wait_ms"), 0);
}
