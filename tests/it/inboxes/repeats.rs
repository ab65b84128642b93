//! A queued request that is sent again: under the same key, owner and request id.

use std::time::{Duration, Instant};

use dlock_testkit::{Client, Grant, Inbox, Waiter, wait_for};

use super::{enqueue_many, held_with_inbox, shown};
use crate::fixtures::assert_refused;

#[test]
fn repeated_request_for_hold_is_replied_at_once_and_its_answer_stays() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    let replied = client.acquire("door bob 30000 QUEUE inbox 0 REQID r1");
    assert_eq!((replied.holds, replied.waited_ms), (1, 0));
    assert!(replied.lease_ms > 30_000, "not even the lease changes");
    let grant = inbox.granted();
    assert_eq!((grant.fence, grant.holds), (replied.fence, 1));
    inbox.assert_empty();
    client.assert_sole_holder("door", "bob", grant.fence, 1);
}

#[test]
fn repeated_request_for_hold_needs_no_inbox() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    for wait in ["QUEUE nobody 0", "BLOCK 0", ""] {
        let replied = client.acquire(&format!("door bob 60000 {wait} REQID r1"));
        assert_eq!(replied.holds, 1, "{wait}");
    }
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
}

/// A reply told bob that he holds the lock: his grant counts as carried by a reply.
#[test]
fn hold_that_a_reply_told_survives_end_of_inbox() {
    for wait in ["QUEUE short 0", "QUEUE nobody 0", "BLOCK 0", ""] {
        let (_server, mut client, _inbox) = held_with_inbox();
        let replies = client.batch(&[
            "DLOCK.GRANTS short 0 TTL 100",
            "DLOCK.ACQUIRE door bob 60000 QUEUE short 0 REQID r1",
            "DLOCK.ACQUIRE door carol 60000 QUEUE short 0 REQID r1",
            "DLOCK.ACQUIRE door bob 60000 QUEUE short 0 REQID r2",
            // Bob is granted both, and is told of one.
            "DLOCK.RELEASE door alice",
            &format!("DLOCK.ACQUIRE door bob 60000 {wait} REQID r1"),
        ]);
        let told = Grant::parse(replies[5].clone()).expect("bob's hold");
        assert_eq!(told.holds, 2);
        client.wait_for_inboxes(1);
        wait_for("the rollback of the other hold", || {
            client.stat("dlock_grants_rolled_back") == 1
        });
        client.wait_for_queue("door", 0);
        client.assert_sole_holder("door", "bob", told.fence, 1);
    }
}

#[test]
fn repeated_waiter_keeps_place_with_new_lease_and_has_one_answer() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door dave 60000 QUEUE inbox 0 REQID r1");
    let before = client.enqueue("door carol 20000 QUEUE inbox 3600000 REQID r1");
    assert_eq!(before, 1);
    assert_eq!(client.queue("door"), ["bob", "carol", "dave"]);
    assert_eq!(client.waiters("door")[1].timeout_ms, 3_600_000);
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
    client.release("door bob");
    let answer = inbox.take(1).remove(0);
    assert_eq!(answer.shown(), "granted r1 door carol");
    assert!(answer.grant().lease_ms <= 20_000, "{answer:?}");
    inbox.assert_empty();
}

#[test]
fn repeated_waiter_has_new_timeout() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 1500 REQID r1");
    wait_for("a while in the queue", || {
        client.waiters("door")[0].waited_ms >= 300
    });
    let start = Instant::now();
    client.enqueue("door bob 60000 QUEUE inbox 1500 REQID r1");
    assert_eq!(shown(&inbox.take(1)), ["timeout r1 door bob"]);
    assert!(
        start.elapsed() >= Duration::from_millis(1_500),
        "the old one does not count"
    );
    inbox.assert_empty();
    client.enqueue("door bob 60000 QUEUE inbox 600000 REQID r2");
    client.enqueue("door bob 60000 QUEUE inbox 50 REQID r2");
    assert_eq!(shown(&inbox.take(1)), ["timeout r2 door bob"]);
}

#[test]
fn waiter_repeated_for_another_inbox_is_answered_there_and_unblocked_here() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut other = Inbox::make(&server, "other");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(client.enqueue("door bob 60000 QUEUE other 0 REQID r1"), 0);
    assert_eq!(shown(&inbox.take(1)), ["error r1 door bob UNBLOCKED"]);
    assert_eq!(client.queue("door"), ["bob", "carol"]);
    client.release("door alice");
    assert_eq!(shown(&other.take(1)), ["granted r1 door bob"]);
    inbox.assert_empty();
}

#[test]
fn waiter_moved_to_another_inbox_outlives_first_one() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut other = Inbox::make(&server, "other");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door bob 60000 QUEUE other 0 REQID r1");
    inbox.call("TTL 0");
    client.wait_for_inboxes(1);
    assert_eq!(client.queue("door"), ["bob"]);
    client.release("door alice");
    assert_eq!(shown(&other.take(1)), ["granted r1 door bob"]);
}

#[test]
fn waiter_moved_back_and_forth_has_one_answer_for_each_sending() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut other = Inbox::make(&server, "other");
    for n in 0..6 {
        let name = if n % 2 == 0 { "inbox" } else { "other" };
        client.enqueue(&format!("door bob 60000 QUEUE {name} 0 REQID r1"));
    }
    client.release("door alice");
    let unblocked = "error r1 door bob UNBLOCKED".to_owned();
    assert_eq!(
        shown(&inbox.take(3)),
        [unblocked.clone(), unblocked.clone(), unblocked.clone()]
    );
    assert_eq!(
        shown(&other.take(3)),
        [unblocked.clone(), unblocked, "granted r1 door bob".into()]
    );
}

#[test]
fn queue_replaces_block_in_its_place() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut blocked = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    let carol = server.waiter("door carol 60000 BLOCK 0");
    assert_eq!(client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1"), 0);
    assert_refused(&mut blocked, "UNBLOCKED");
    assert_eq!(client.queue("door"), ["bob", "carol"]);
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
    carol.assert_waiting();
}

#[test]
fn block_replaces_queue_in_its_place() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    let carol = server.waiter("door carol 60000 BLOCK 0");
    let mut bob = server.send_acquire("door bob 60000 BLOCK 0 REQID r1");
    assert_eq!(shown(&inbox.take(1)), ["error r1 door bob UNBLOCKED"]);
    assert_eq!(client.queue("door"), ["bob", "carol"]);
    client.release("door alice");
    bob.granted();
    carol.assert_waiting();
    inbox.assert_empty();
}

#[test]
fn replaced_block_that_disconnects_does_not_end_queued_request() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let blocked = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    blocked.close();
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn killed_block_that_was_replaced_in_same_step_stays_queued() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let queue = "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1";
    for kill_first in [true, false] {
        let mut blocked = Waiter::connect(&server);
        let kill = format!("CLIENT KILL ID {}", blocked.id());
        blocked.acquire("door bob 60000 BLOCK 0 REQID r1");
        client.wait_for_queue("door", 1);
        client.batch(&if kill_first {
            [&kill, queue]
        } else {
            [queue, &kill]
        });
        wait_until_none_blocked_but_queued(&mut client);
        assert_eq!(client.queue("door"), ["bob"]);
        client.release("door bob REQID r1");
        assert_eq!(shown(&inbox.take(1)), ["withdrawn r1 door bob"]);
    }
}

/// Waits until the server has freed all blocked clients.
fn wait_until_none_blocked_but_queued(client: &mut Client) {
    wait_for("no blocked clients", || {
        client.server_info("clients", "blocked_clients") == "0"
    });
}

#[test]
fn block_that_replaced_queue_outlives_its_inbox() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    let mut bob = server.send_acquire("door bob 60000 BLOCK 0 REQID r1");
    inbox.take(1);
    inbox.call("TTL 0");
    client.wait_for_inboxes(0);
    assert_eq!(client.queue("door"), ["bob"]);
    client.release("door alice");
    bob.granted();
}

#[test]
fn hold_repeated_after_end_of_inbox_and_before_rollback_is_kept() {
    const CARRIED: usize = 1_000;
    let (_server, mut client, inbox) = held_with_inbox();
    enqueue_many(&mut client, "door", CARRIED + 1, "SHARED");
    let request = format!("DLOCK.ACQUIRE door owner{CARRIED} 60000 SHARED REQID r{CARRIED}");
    // The reply carries all but the last.
    client.release("door alice");
    client.wait_for_queue("door", 0);
    let replies = client.batch(&[&format!("DLOCK.GRANTS inbox {} TTL 0", inbox.cursor()), &request]);
    let told = Grant::parse(replies[1].clone()).expect("its hold");
    client.wait_for_inboxes(0);
    wait_for("no answers", || client.stat("dlock_inbox_answers") == 0);
    // Another inbox that ends later shows that a rollback would have happened by now.
    client.batch(&["DLOCK.GRANTS later 0 TTL 100"]);
    client.wait_for_inboxes(0);
    let lock = client.lock("door");
    assert_eq!(lock.holders.len(), CARRIED + 1);
    assert_eq!(lock.holder(&format!("owner{CARRIED}")).fence, told.fence);
}

#[test]
fn answered_request_is_queued_anew_at_the_end() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 50 REQID r1");
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(shown(&inbox.take(1)), ["timeout r1 door bob"]);
    assert_eq!(client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1"), 1);
    assert_eq!(client.queue("door"), ["carol", "bob"]);
}

/// A repeat does not take back the answer to an earlier sending that was over.
#[test]
fn unread_answer_of_earlier_sending_stays() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door bob REQID r1");
    client.enqueue("door bob 60000 QUEUE inbox 20 REQID r1");
    client.wait_for_queue("door", 0);
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    let expected = [
        "withdrawn r1 door bob",
        "timeout r1 door bob",
        "granted r1 door bob",
    ];
    assert_eq!(shown(&inbox.take(3)), expected);
}

#[test]
fn released_hold_is_queued_anew_under_its_name() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    client.release("door bob REQID r1");
    client.acquire("door alice 60000");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    let answers = inbox.take(2);
    assert_eq!(shown(&answers), ["granted r1 door bob", "granted r1 door bob"]);
    let fences: Vec<u64> = answers.iter().map(|answer| answer.grant().fence).collect();
    assert!(fences[0] < fences[1]);
    client.assert_sole_holder("door", "bob", fences[1], 1);
}

#[test]
fn repeat_with_another_limit_is_refused_and_request_waits_on() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 LIMIT 2 QUEUE inbox 0 REQID r1");
    for options in ["", "SHARED", "LIMIT 3"] {
        client.assert_error(
            "ERR",
            &format!("DLOCK.ACQUIRE door bob 60000 {options} QUEUE inbox 0 REQID r1"),
        );
    }
    assert_eq!(client.waiters("door")[0].limit, 2);
    inbox.assert_empty();
    client.release("door alice");
    inbox.granted();
}

#[test]
fn repeat_for_unknown_inbox_is_refused_and_request_waits_on() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 600000 REQID r1");
    client.assert_error("NOINBOX", "DLOCK.ACQUIRE door bob 1000 QUEUE nobody 0 REQID r1");
    assert_eq!(client.waiters("door")[0].timeout_ms, 600_000);
    client.release("door alice");
    assert!(inbox.granted().lease_ms > 1_000);
}

#[test]
fn same_reqid_of_other_owners_and_locks_is_separate() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.acquire("gate alice 60000");
    let requests = ["door bob", "door carol", "gate bob", "gate carol"];
    for request in requests {
        client.enqueue(&format!("{request} 60000 SHARED QUEUE inbox 0 REQID r1"));
    }
    client.release("door alice");
    client.release("gate alice");
    let expected = requests.map(|request| format!("granted r1 {request}"));
    assert_eq!(shown(&inbox.take(4)), expected);
}

#[test]
fn thousand_repeats_of_one_request_have_one_answer() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    let request = "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1";
    client.batch(&vec![request; 1_000]);
    assert_eq!(client.waiting("door"), 1);
    assert_eq!(client.stat("dlock_waiters"), 1);
    client.release("door alice");
    client.batch(&vec![request; 1_000]);
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
    inbox.assert_empty();
    assert_eq!(client.lock("door").holder("bob").holds, 1);
}
