//! A queued request that is sent again: under the same key, owner and request id.

use dlock_testkit::{Grant, wait_for};

use super::{enqueue_many, held_with_inbox, shown};

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
