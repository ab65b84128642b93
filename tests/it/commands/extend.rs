//! DLOCK.EXTEND: leases grow and never shrink.

use dlock_testkit::start;

use crate::fixtures::held_by_alice;

#[test]
fn extend_with_longer_lease_returns_it() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000");
    assert_eq!(client.extend("door alice 60000"), 60_000);
    assert!(client.lock("door").holder("alice").lease_ms > 50_000);
}

#[test]
fn extend_with_shorter_lease_keeps_remaining_lease() {
    let (_server, mut client) = held_by_alice();
    let remains = client.extend("door alice 10");
    assert!((50_000..=60_000).contains(&remains), "{remains}");
    assert!(client.lock("door").holder("alice").lease_ms > 50_000);
}

#[test]
fn extend_keeps_fence_and_holds() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000");
    client.acquire("door alice 10000 REQID r1");
    let before = client.lock("door").standing();
    client.extend("door alice 60000");
    assert_eq!(client.lock("door").standing(), before);
}

#[test]
fn extend_affects_only_its_holder() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000 SHARED");
    client.acquire("door bob 10000 SHARED");
    client.extend("door bob 60000");
    let lock = client.lock("door");
    assert!(lock.holder("alice").lease_ms <= 10_000);
    assert!(lock.holder("bob").lease_ms > 50_000);
}

#[test]
fn extend_errors_have_distinct_codes() {
    let (_server, mut client) = start();
    client.assert_error("NOTHELD", "DLOCK.EXTEND door alice 60000");
    let fence = client.acquire("door alice 10000").fence;
    client.assert_error("NOTOWNER", "DLOCK.EXTEND door bob 60000");
    client.assert_error("NOTOWNER", &format!("DLOCK.EXTEND door bob 60000 FENCE {fence}"));
    client.assert_error(
        "STALE",
        &format!("DLOCK.EXTEND door alice 60000 FENCE {}", fence - 1),
    );
    let is_expected = client.lock("door").holder("alice").lease_ms <= 10_000;
    assert!(is_expected, "a refused request changes nothing");
    assert_eq!(client.extend(&format!("door alice 60000 fence {fence}")), 60_000);
    client.release("door alice");
    client.assert_error("NOTHELD", "DLOCK.EXTEND door alice 60000");
}

#[test]
fn extend_by_reqid_needs_a_hold_of_that_id() {
    let (_server, mut client) = start();
    client.assert_error("NOTHELD", "DLOCK.EXTEND door alice 60000 REQID r1");
    client.acquire("door alice 10000 REQID r2");
    client.assert_error("STALE", "DLOCK.EXTEND door alice 60000 REQID r1");
    client.assert_error("NOTOWNER", "DLOCK.EXTEND door bob 60000 REQID r2");
    client.assert_error("ERR", "DLOCK.EXTEND door alice 60000 REQID r2 FENCE 1");
    assert_eq!(client.lock("door").holder("alice").lease_ms / 10_001, 0);
    assert_eq!(client.extend("door alice 60000 reqid r2"), 60_000);
}

#[test]
fn extend_with_fence_of_earlier_grant_is_stale() {
    let (_server, mut client) = start();
    let old = client.acquire("door alice 10000").fence;
    client.release("door alice");
    client.acquire("door alice 10000");
    client.assert_error("STALE", &format!("DLOCK.EXTEND door alice 60000 FENCE {old}"));
}
