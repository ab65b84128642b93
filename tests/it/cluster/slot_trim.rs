//! Atomic slot migration of Redis 8.4 and later: CLUSTER MIGRATION IMPORT. When the slots have gone, the server drops their
//! keys in the background, without a word to the values.

use dlock_testkit::{Client, Cluster, skip, wait_for};
use redis::Value;

/// Node 0 has the slot of the key.
struct Fixture {
    cluster: Cluster,
    source: Client,
    target: Client,
    /// Other locks of the slot have names that begin with this one.
    key: String,
}

impl Fixture {
    /// `None` where the server has no such migration.
    fn start() -> Option<Self> {
        let cluster = Cluster::start(3);
        let mut source = cluster.client(0);
        if source.call("CLUSTER MIGRATION STATUS ALL").is_err() {
            skip("the server has no CLUSTER MIGRATION");
            return None;
        }
        Some(Self {
            source,
            target: cluster.client(1),
            key: format!("{{{}}}", cluster.key_on(0, "door")),
            cluster,
        })
    }

    /// Brings the slot of the key to the target.
    fn migrate(&mut self) {
        let slot: u16 = self.source.ask(&format!("CLUSTER KEYSLOT {}", self.key));
        let _: Value = self
            .target
            .ask(&format!("CLUSTER MIGRATION IMPORT {slot} {slot}"));
        let (key, source, target) = (&self.key, &mut self.source, &mut self.target);
        wait_for("the slot at the target", || {
            source.call(&format!("EXISTS {key}")).is_err() && target.call(&format!("EXISTS {key}")).is_ok()
        });
    }
}

#[test]
fn migration_keeps_holders_and_raises_fences() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let (key, free) = (fixture.key.clone(), format!("{}-free", fixture.key));
    let fence = fixture.source.acquire(&format!("{key} alice 60000")).fence;
    let last = fixture.source.acquire(&format!("{free} bob 60000")).fence;
    fixture.source.release(&format!("{free} bob"));
    fixture.migrate();
    fixture.target.assert_sole_holder(&key, "alice", fence, 1);
    assert!(fixture.target.acquire(&format!("{free} carol 60000")).fence > last);
}

#[test]
fn waiters_are_redirected_after_migration() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let key = fixture.key.clone();
    fixture.source.acquire(&format!("{key} alice 60000"));
    let mut waiter = fixture.cluster.nodes[0].waiter(&format!("{key} bob 60000 BLOCK 0"));
    fixture.migrate();
    let error = waiter.error();
    assert!(error.starts_with("MOVED "), "{error}");
}

#[test]
fn trimmed_slots_leave_no_locks_in_the_counts_of_the_source_and_its_replica() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let mut replica = fixture.cluster.add_replica(0);
    let (key, kept) = (fixture.key.clone(), fixture.cluster.key_on(0, "kept"));
    for name in [&key, &format!("{key}-long"), &kept] {
        fixture.source.acquire(&format!("{name} alice 600000"));
    }
    // In another bucket of the index.
    fixture.source.acquire(&format!("{key}-short alice 60000"));
    wait_for("the replica", || replica.stat("dlock_locks") == 4);
    fixture.migrate();
    let source = &mut fixture.source;
    wait_for("the locks that stayed", || {
        source.stat("dlock_locks") == 1 && replica.stat("dlock_locks") == 1
    });
    assert_eq!(fixture.target.stat("dlock_locks"), 3);
    assert_eq!(source.stat("dlock_expired"), 0, "none of them expired");
    // The one that stayed is still in the index.
    source.release(&format!("{kept} alice"));
    assert_eq!(source.stat("dlock_locks"), 0);
}

#[test]
fn slots_that_come_back_are_counted_again() {
    let Some(mut fixture) = Fixture::start() else {
        return;
    };
    let key = fixture.key.clone();
    fixture.source.acquire(&format!("{key} alice 600000"));
    fixture.migrate();
    std::mem::swap(&mut fixture.source, &mut fixture.target);
    fixture.migrate();
    let (source, target) = (&mut fixture.source, &mut fixture.target);
    wait_for("the lock, where it was at first", || {
        source.stat("dlock_locks") == 0 && target.stat("dlock_locks") == 1
    });
    target.release(&format!("{key} alice"));
    assert_eq!(target.stat("dlock_locks"), 0);
}
