//! Waiting through inboxes in INFO.

use dlock_testkit::{Client, pause};

use super::{enqueue_many, held_with_inbox};

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
