//! The server's log: what an operator asks about later is logged once.

use dlock_testkit::{Cluster, Server, start_with, wait_for};

use crate::fixtures::{AOF, start_with_replica};

/// Waits for a line with this text. Returns the rest of it.
#[track_caller]
fn logged(server: &Server, text: &str) -> String {
    let mut rest = None;
    wait_for(text, || {
        let log = server.log();
        rest = { log.lines() }.find_map(|line| Some(line.split_once(text)?.1.to_owned()));
        rest.is_some()
    });
    assert_eq!(server.log().matches(text).count(), 1, "{text}");
    rest.expect("a line of the log")
}

#[test]
fn begin_and_end_of_grace_are_logged() {
    let (mut server, mut client) = start_with(AOF);
    client.acquire("door alice 60000");
    assert!(!server.log().contains("grace period"));
    server.add_config("dlock.startup-grace-ms 700");
    server.crash_and_restart();
    let left = logged(&server, "grace period began: no lock is granted for ");
    let left_ms: u64 = left.trim_end_matches(" ms").parse().expect("milliseconds");
    assert!((1..=700).contains(&left_ms), "{left}");
    logged(&server, "grace period ended: locks are granted again");
}

#[test]
fn setting_that_shortens_grace_is_logged() {
    let (server, mut client) = start_with("dlock.startup-grace-ms 60000");
    client.config_set("dlock.startup-grace-ms", "0");
    logged(
        &server,
        "dlock.startup-grace-ms was lowered: the grace period ends in 0 ms",
    );
    logged(&server, "grace period ended");
}

#[test]
fn promotion_logs_how_far_it_advanced_fences() {
    let (_primary, replica, mut client, mut replica_client) = start_with_replica();
    let fence = client.acquire("door alice 60000").fence;
    client.sync();
    assert!(!replica.log().contains("fence counter"));
    replica_client.ok("REPLICAOF NO ONE");
    let after = logged(&replica, &format!("the fence counter advanced from {fence} to "));
    let granted = replica_client.acquire("gate bob 60000").fence;
    assert_eq!(after, (granted - 1).to_string());
}

#[test]
fn slot_that_leaves_is_logged_with_its_waiters() {
    let cluster = Cluster::start(2);
    let (old, mut client) = (&cluster.nodes[0], cluster.client(0));
    let key = cluster.key_on(0, "door");
    client.acquire(&format!("{key} alice 60000"));
    let mut bob = old.waiter(&format!("{key} bob 60000 BLOCK 0"));
    let slot = cluster.begin_move(&key, 0, 1);
    client.batch(&[&cluster.migrate(slot, &key), &cluster.assign(slot)]);
    cluster.client(1).ok(&cluster.assign(slot));
    bob.error();
    logged(
        old,
        "1 waiters got an error: their locks are not granted here any more",
    );
    logged(
        old,
        "1 cluster slots with locks have left this node, or are being migrated",
    );
}
