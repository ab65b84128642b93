//! DLOCK.RELEASE: which hold is released, and what is refused.

use dlock_testkit::start;

#[test]
fn release_removes_one_hold_and_returns_remaining() {
    let (_server, mut client) = start();
    for _ in 0..3 {
        client.acquire("door alice 10000");
    }
    for left in [2, 1] {
        assert_eq!(client.release("door alice"), left);
        assert_eq!(client.owner("door").as_deref(), Some("alice"));
    }
    assert_eq!(client.release("door alice"), 0);
    assert!(!client.exists("door"), "a free lock is no key");
}

#[test]
fn release_all_removes_every_hold() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000");
    client.acquire("door alice 10000 REQID r1");
    client.acquire("door alice 10000 REQID r2");
    assert_eq!(client.release("door alice all"), 0);
    assert!(!client.exists("door"));
}

#[test]
fn release_removes_holds_without_reqid_first_then_newest() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000 REQID oldest");
    client.acquire("door alice 10000");
    client.acquire("door alice 10000 REQID youngest");
    assert_eq!(client.release("door alice"), 2);
    // A known request id adds no hold: both are still there.
    assert_eq!(client.acquire("door alice 10000 REQID oldest").holds, 2);
    assert_eq!(client.acquire("door alice 10000 REQID youngest").holds, 2);
    assert_eq!(client.release("door alice"), 1);
    assert_eq!(client.acquire("door alice 10000 REQID oldest").holds, 1);
}

#[test]
fn release_by_reqid_removes_its_hold() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000 REQID r1");
    client.acquire("door alice 10000 REQID r2");
    client.acquire("door alice 10000");
    assert_eq!(client.release("door alice REQID r1"), 2);
    let holds = client.acquire("door alice 10000 REQID r2").holds;
    assert_eq!(holds, 2, "the other one is still there");
    assert_eq!(client.release("door alice REQID r2"), 1);
    assert_eq!(client.release("door alice"), 0);
}

#[test]
fn repeated_release_by_reqid_is_idempotent() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000");
    client.acquire("door alice 10000 REQID r1");
    for _ in 0..3 {
        assert_eq!(client.release("door alice REQID r1"), 1);
    }
    assert_eq!(client.lock("door").holder("alice").holds, 1);
    client.release("door alice");
    assert_eq!(client.release("door alice REQID r1"), 0, "the lock is free");
    client.acquire("door bob 10000");
    assert_eq!(client.release("door alice REQID r1"), 0, "another owner holds it");
    assert_eq!(client.lock("door").standing().len(), 1);
}

#[test]
fn release_by_unknown_reqid_changes_nothing() {
    let (_server, mut client) = start();
    assert_eq!(client.release("door alice REQID never"), 0);
    assert!(!client.exists("door"));
    client.acquire("door alice 10000 REQID r1");
    assert_eq!(client.release("door alice REQID never"), 1);
    let left = client.release("door bob REQID r1");
    assert_eq!(left, 0, "the request id belongs to alice");
    assert_eq!(client.lock("door").holder("alice").holds, 1);
}

#[test]
fn release_errors_have_distinct_codes() {
    let (_server, mut client) = start();
    client.assert_error("NOTHELD", "DLOCK.RELEASE door alice");
    let fence = client.acquire("door alice 10000").fence;
    client.assert_error("NOTOWNER", "DLOCK.RELEASE door bob");
    client.assert_error("NOTOWNER", "DLOCK.RELEASE door bob ALL");
    client.assert_error("NOTOWNER", &format!("DLOCK.RELEASE door bob FENCE {fence}"));
    client.assert_error("STALE", &format!("DLOCK.RELEASE door alice FENCE {}", fence - 1));
    client.assert_error(
        "STALE",
        &format!("DLOCK.RELEASE door alice ALL FENCE {}", fence + 1),
    );
    assert_eq!(client.lock("door").holder("alice").holds, 1);
    client.release("door alice");
    client.assert_error("NOTHELD", "DLOCK.RELEASE door alice");
}

#[test]
fn release_with_current_fence_succeeds() {
    let (_server, mut client) = start();
    let fence = client.acquire("door alice 10000").fence;
    client.acquire("door alice 10000");
    client.acquire("door alice 10000 REQID r1");
    assert_eq!(client.release(&format!("door alice FENCE {fence}")), 2);
    assert_eq!(client.release(&format!("door alice REQID r1 fence {fence}")), 1);
    assert_eq!(client.release(&format!("door alice FENCE {fence} ALL")), 0);
}

#[test]
fn release_with_old_fence_is_stale_even_for_unknown_reqid() {
    let (_server, mut client) = start();
    let old = client.acquire("door alice 10000 REQID r1").fence;
    client.release("door alice");
    client.acquire("door alice 10000 REQID r2");
    client.assert_error("STALE", &format!("DLOCK.RELEASE door alice REQID r1 FENCE {old}"));
    client.assert_error("STALE", &format!("DLOCK.RELEASE door alice REQID r2 FENCE {old}"));
    assert_eq!(client.lock("door").holder("alice").holds, 1);
}

#[test]
fn release_by_reqid_with_fence_reports_a_lost_lock() {
    let (_server, mut client) = start();
    let fence = client.acquire("door alice 10000 REQID r1").fence;
    let release = format!("DLOCK.RELEASE door alice FENCE {fence} REQID r1");
    let left = client.release(&format!("door alice REQID never FENCE {fence}"));
    assert_eq!(left, 1, "a holder with that fence");
    client.ask::<i64>("DEL door");
    client.assert_error("NOTHELD", &release);
    client.acquire("door bob 10000 REQID r1");
    client.assert_error("NOTOWNER", &release);
    assert_eq!(client.lock("door").owners(), ["bob"]);
    let left = client.release("door alice REQID r1");
    assert_eq!(left, 0, "idempotent without FENCE");
}

#[test]
fn release_keeps_other_shared_holders() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000 SHARED");
    client.acquire("door bob 10000 SHARED");
    client.acquire("door carol 10000 SHARED");
    let before = client.lock("door").standing();
    assert_eq!(client.release("door bob"), 0);
    let standing = client.lock("door").standing();
    assert_eq!(standing, [before[0].clone(), before[2].clone()]);
    client.assert_error("NOTOWNER", "DLOCK.RELEASE door bob");
}

#[test]
fn released_lock_is_granted_to_next_request() {
    let (_server, mut client) = start();
    let first = client.acquire("door alice 10000").fence;
    assert_eq!(client.try_acquire("door bob 10000"), None);
    client.release("door alice");
    assert!(client.acquire("door bob 10000").fence > first);
}
