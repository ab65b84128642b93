//! Waiting requests with a request id: cancelled by it, and replaced when repeated.

use dlock_testkit::{Waiter, wait_for};

use crate::fixtures::{assert_refused, held_by_alice};

#[test]
fn release_by_reqid_cancels_waiter() {
    let (server, mut client) = held_by_alice();
    let mut bob = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    let mut other = server.waiter("door bob 60000 BLOCK 0 REQID r2");
    assert_eq!(client.release("door bob REQID r1"), 0);
    bob.assert_null();
    other.assert_waiting();
    assert_eq!(client.waiting("door"), 1);
    assert_eq!(client.release("door bob REQID r1"), 0, "it can be repeated");
    client.release("door alice");
    assert_eq!(other.granted().holds, 1);
    assert_eq!(client.stat("dlock_wait_timeouts"), 0);
}

#[test]
fn refused_release_by_reqid_with_fence_cancels_nothing() {
    let (server, mut client) = held_by_alice();
    let fence = client.lock("door").holder("alice").fence;
    let mut bob = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    client.assert_error(
        "NOTOWNER",
        &format!("DLOCK.RELEASE door bob REQID r1 FENCE {fence}"),
    );
    assert_eq!(client.queue("door"), ["bob"]);
    client.release("door alice");
    bob.granted();
}

#[test]
fn release_of_another_owner_cancels_nothing() {
    let (server, mut client) = held_by_alice();
    let mut bob = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    assert_eq!(client.release("door carol REQID r1"), 0);
    assert_eq!(client.release("door alice REQID r1"), 1);
    assert_eq!(client.queue("door"), ["bob"]);
    client.release("door alice");
    bob.granted();
}

#[test]
fn release_by_reqid_takes_back_grant_in_flight() {
    let (server, mut client) = held_by_alice();
    let mut bob = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    client.batch(&["DLOCK.RELEASE door alice", "DLOCK.RELEASE door bob REQID r1"]);
    bob.granted();
    carol.granted();
    assert_eq!(client.lock("door").owners(), ["carol"]);
}

#[test]
fn repeated_reqid_replaces_waiter_in_place() {
    let (server, mut client) = held_by_alice();
    let mut lost = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    let carol = server.waiter("door carol 60000 BLOCK 0");
    let mut bob = server.send_acquire("door bob 20000 BLOCK 3600000 REQID r1");
    let expected = "UNBLOCKED replaced by a request with the same REQID";
    assert_eq!(lost.error(), expected);
    assert_eq!(client.queue("door"), ["bob", "carol"], "the position is kept");
    assert_eq!(client.waiters("door")[0].timeout_ms, 3_600_000);
    client.release("door alice");
    let grant = bob.granted();
    assert_eq!((grant.holds, grant.lease_ms), (1, 20_000), "the new lease counts");
    carol.assert_waiting();
}

#[test]
fn repeated_reqid_restarts_timeout_and_wait_time() {
    let (server, mut client) = held_by_alice();
    let _lost = server.waiter("door bob 60000 BLOCK 3000 REQID r1");
    wait_for("a while in the queue", || {
        client.waiters("door")[0].waited_ms >= 200
    });
    let start = std::time::Instant::now();
    let mut bob = server.send_acquire("door bob 60000 BLOCK 3000 REQID r1");
    bob.assert_null();
    let is_expected = start.elapsed().as_millis() >= 3000;
    assert!(is_expected, "the old timeout does not count");
    let _lost = server.waiter("door bob 60000 BLOCK 0 REQID r2");
    wait_for("a while in the queue", || {
        client.waiters("door")[0].waited_ms >= 200
    });
    let start = std::time::Instant::now();
    let mut bob = server.send_acquire("door bob 60000 BLOCK 60000 REQID r2");
    wait_for("the replacement", || {
        client.waiters("door")[0].timeout_ms == 60_000
    });
    client.release("door alice");
    assert!(u128::from(bob.granted().waited_ms) <= start.elapsed().as_millis());
}

#[test]
fn repeated_reqid_with_another_limit_is_refused() {
    let (server, mut client) = held_by_alice();
    let mut bob = server.waiter("door bob 60000 LIMIT 2 BLOCK 0 REQID r1");
    for other in ["", "SHARED", "LIMIT 3"] {
        client.assert_error(
            "ERR",
            &format!("DLOCK.ACQUIRE door bob 60000 {other} BLOCK 0 REQID r1"),
        );
    }
    assert_eq!(client.waiters("door")[0].limit, 2);
    bob.assert_waiting();
    client.release("door alice");
    assert_eq!(bob.granted().holds, 1);
}

#[test]
fn same_reqid_of_another_owner_is_separate_request() {
    let (server, mut client) = held_by_alice();
    let mut bob = server.waiter("door bob 60000 SHARED BLOCK 0 REQID r1");
    let mut carol = server.waiter("door carol 60000 SHARED BLOCK 0 REQID r1");
    assert_eq!(client.queue("door"), ["bob", "carol"]);
    client.release("door alice");
    bob.granted();
    carol.granted();
}

#[test]
fn repeated_reqid_after_grant_returns_same_hold() {
    let (server, mut client) = held_by_alice();
    let mut bob = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    client.release("door alice");
    let grant = bob.granted();
    let again = client.acquire("door bob 60000 BLOCK 0 REQID r1");
    assert_eq!((again.fence, again.holds, again.waited_ms), (grant.fence, 1, 0));
}

#[test]
fn reqid_can_be_repeated_many_times() {
    let (server, mut client) = held_by_alice();
    let mut lost: Vec<Waiter> = Vec::new();
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    for n in 1..=20 {
        // Each has another timeout, to distinguish it from the one before.
        let waiter = server.send_acquire(&format!("door bob 60000 BLOCK {} REQID r1", 60_000 + n));
        wait_for("the replacement", || {
            let waiters = client.waiters("door");
            waiters.len() == 2 && waiters[1].timeout_ms == 60_000 + n
        });
        lost.push(waiter);
    }
    let mut last = lost.pop().expect("one is left");
    for waiter in &mut lost {
        assert_refused(waiter, "UNBLOCKED");
    }
    client.release("door alice");
    carol.granted();
    client.release("door carol");
    assert_eq!(last.granted().holds, 1);
}
