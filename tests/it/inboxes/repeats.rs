//! A queued request that is sent again: under the same key, owner and request id.

use dlock_testkit::{Client, Grant, Inbox, Waiter, wait_for};

use super::{enqueue_many, held_with_inbox, shown};

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
