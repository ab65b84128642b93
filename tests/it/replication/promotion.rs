//! A replica that becomes the primary.

use dlock_testkit::{Client, Server, pause, wait_for};

use crate::fixtures::{start_with_replica, wait_for_promotion};

/// The minimum by which a promotion raises the fence counter.
const PROMOTION_GAP: u64 = 1 << 26;

fn promoted(primary: &mut Server, replica: &Server) -> Client {
    primary.kill();
    let mut client = replica.client();
    client.ok("REPLICAOF NO ONE");
    client
}

#[test]
fn holders_keep_locks_after_promotion() {
    let mut primary = Server::start();
    let replica = primary.replica();
    let mut client = primary.client();
    let fence = client.acquire("door alice 60000").fence;
    client.acquire("door alice 60000 REQID r1");
    client.acquire("gate bob 60000 SHARED");
    client.sync();
    let mut client = promoted(&mut primary, &replica);
    client.assert_sole_holder("door", "alice", fence, 2);
    assert_eq!(client.try_acquire("door bob 10000"), None);
    let holds = client.acquire("door alice 60000 REQID r1").holds;
    assert_eq!(holds, 2, "request ids are replicated");
    assert_eq!(client.extend(&format!("door alice 80000 FENCE {fence}")), 80_000);
    assert_eq!(client.release(&format!("door alice ALL FENCE {fence}")), 0);
    assert_eq!(client.release("gate bob"), 0);
}

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
fn lease_expired_during_failover_frees_lock() {
    let mut primary = Server::start();
    let replica = primary.replica();
    let mut client = primary.client();
    client.pause_writes_after(&["DLOCK.ACQUIRE door alice 50", "DLOCK.ACQUIRE gate alice 50"]);
    let mut client = replica.client();
    wait_for("the locks on the replica", || client.exists("gate"));
    primary.kill();
    wait_for("the end of the lease", || client.owner("gate").is_none());
    pause(200);
    assert!(client.exists("gate"), "a replica expires nothing itself");
    client.ok("REPLICAOF NO ONE");
    client.acquire("door bob 10000");
    wait_for("the sweep of the new primary", || !client.exists("gate"));
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

#[test]
fn fences_rise_over_demotion_and_repromotion() {
    let (primary, replica, mut first, mut second) = start_with_replica();
    let mut last = first.acquire("door alice 60000").fence;
    first.sync();
    for _ in 0..2 {
        second.ok("REPLICAOF NO ONE");
        first.ok(&format!("REPLICAOF 127.0.0.1 {}", replica.port()));
        primary.wait_until_linked();
        second.release("door alice");
        let fence = second.acquire("door alice 60000").fence;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        second.sync();
        first.ok("REPLICAOF NO ONE");
        second.ok(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        replica.wait_until_linked();
        first.release("door alice");
        let fence = first.acquire("door alice 60000").fence;
        assert!(fence > last, "{fence} after {last}");
        last = fence;
        first.sync();
    }
}
