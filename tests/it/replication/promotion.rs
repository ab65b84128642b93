//! A replica that becomes the primary.

use dlock_testkit::{Server, wait_for};

use crate::fixtures::{start_with_replica, wait_for_promotion};

/// The minimum by which a promotion raises the fence counter.
const PROMOTION_GAP: u64 = 1 << 26;

#[test]
fn fences_after_promotion_exceed_those_of_old_primary() {
    let primary = Server::start();
    let replica = primary.replica();
    let mut old = primary.client();
    let known = old.acquire("door alice 60000").fence;
    old.sync();
    let mut new = replica.client();
    new.ok("REPLICAOF NO ONE");
    // Isolated, the old primary continues for a while.
    let mut isolated = 0;
    for n in 0..1000 {
        isolated = old.acquire(&format!("lock{n} alice 60000")).fence;
    }
    let promoted = new.acquire("gate bob 60000").fence;
    assert!(promoted >= known + PROMOTION_GAP, "{promoted} after {known}");
    assert!(promoted > isolated);
}

#[test]
fn planned_failover_loses_nothing() {
    let (primary, _replica, mut old, mut new) = start_with_replica();
    let fence = old.acquire("door alice 60000").fence;
    old.acquire("door alice 60000");
    old.sync();
    old.ok("FAILOVER TIMEOUT 20000");
    wait_for_promotion(&mut new);
    wait_for("the demotion", || {
        old.server_info("replication", "role") == "slave"
    });
    new.assert_sole_holder("door", "alice", fence, 2);
    assert_eq!(new.release(&format!("door alice ALL FENCE {fence}")), 0);
    assert!(new.acquire("door bob 60000").fence > fence);
    primary.wait_until_linked();
    new.sync();
    assert_eq!(old.owner("door").as_deref(), Some("bob"));
}
