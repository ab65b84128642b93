//! Locks in a cluster: slots of other nodes, slots that move, and nodes that restart.

use dlock_testkit::{Cluster, Server, pause, wait_for};

#[test]
fn unassigned_slot_is_refused_as_clusterdown() {
    let server = Server::cluster_node();
    let mut client = server.client();
    client.assert_error("CLUSTERDOWN", "DLOCK.ACQUIRE door alice 60000");
    client.assert_error("CLUSTERDOWN", "DLOCK.OWNER door");
}

#[test]
fn slot_of_another_node_is_redirected_by_moved() {
    let cluster = Cluster::start(2);
    let (key, mut client) = (cluster.key_on(0, "door"), cluster.client(1));
    for command in [
        "ACQUIRE {key} alice 60000",
        "ACQUIRE {key} alice 60000 QUEUE inbox 0 REQID r1",
        "RELEASE {key} alice",
        "EXTEND {key} alice 60000",
        "OWNER {key}",
        "INFO {key}",
    ] {
        let error = client.error(&format!("DLOCK.{}", command.replace("{key}", &key)));
        let port = cluster.nodes[0].port();
        let is_expected = error.starts_with("MOVED ") && error.ends_with(&format!(":{port}"));
        assert!(is_expected, "{command}: {error}");
    }
}

#[test]
fn migrated_slot_keeps_holders_and_raises_fence() {
    let cluster = Cluster::start(2);
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    let tag = cluster.key_on(0, "door");
    let (held, free) = (format!("{{{tag}}}held"), format!("{{{tag}}}free"));
    let held_fence = one.acquire(&format!("{held} alice 60000")).fence;
    let free_fence = one.acquire(&format!("{free} alice 60000")).fence;
    one.release(&format!("{free} alice"));

    let slot = cluster.begin_move(&held, 0, 1);
    one.ok(&cluster.migrate(slot, &held));
    one.assert_error("ASK", &format!("DLOCK.OWNER {held}"));
    two.ok(&cluster.assign(slot));
    one.ok(&cluster.assign(slot));

    one.assert_error("MOVED", &format!("DLOCK.ACQUIRE {held} alice 60000"));
    two.assert_sole_holder(&held, "alice", held_fence, 1);
    assert_eq!(two.try_acquire(&format!("{held} bob 60000")), None);
    assert!(two.acquire(&format!("{free} bob 60000")).fence > free_fence);
    two.release(&format!("{held} alice"));
    assert!(two.acquire(&format!("{held} bob 60000")).fence > held_fence);
}

#[test]
fn slot_that_was_away_gets_larger_fence() {
    let cluster = Cluster::start(2);
    let (mut one, mut two) = (cluster.client(0), cluster.client(1));
    let door = cluster.key_on(0, "door");
    let request = format!("{door} alice 60000");
    let move_slot = |from, to| {
        let slot = cluster.begin_move(&door, from, to);
        cluster.client(to).ok(&cluster.assign(slot));
        cluster.client(from).ok(&cluster.assign(slot));
    };
    let old = one.acquire(&request).fence;
    one.release(&format!("{door} alice"));
    move_slot(0, 1);
    // A node checks once a second which slots it has.
    pause(1_500);
    let away = two.acquire(&request).fence;
    assert!(away > old + 1000, "the second node is ahead");
    two.release(&format!("{door} alice"));
    move_slot(1, 0);
    // The counters start from a clock that has milliseconds: each step takes some.
    pause(5);
    assert!(one.acquire(&request).fence > away);
}

#[test]
fn restarted_replica_has_no_startup_grace_when_promoted() {
    let mut cluster = Cluster::start(2);
    let (mut one, door) = (cluster.client(0), cluster.key_on(0, "door"));
    cluster.add_replica(0).ok("SAVE");
    let fence = one.acquire(&format!("{door} alice 60000")).fence;
    one.sync();
    let replica = &mut cluster.nodes[2];
    replica.add_config("dlock.startup-grace-ms 60000\ndlock.failover-grace-ms 0");
    replica.crash_and_restart();
    replica.wait_until_linked();
    let mut promoted = replica.client();
    let left_ms = promoted.stat("dlock_grace_left_ms");
    assert_eq!(left_ms, 0, "it did not start as a primary");
    cluster.fail_over(&mut promoted);
    promoted.assert_sole_holder(&door, "alice", fence, 1);
    let free = format!("{{{door}}}free");
    assert!(promoted.acquire(&format!("{free} bob 60000")).fence > fence);
}

#[test]
fn restarted_primary_has_startup_grace_in_cluster() {
    let mut cluster = Cluster::start(1);
    cluster.client(0).acquire("door alice 60000");
    cluster.client(0).ok("SAVE");
    let server = &mut cluster.nodes[0];
    server.add_config("dlock.startup-grace-ms 60000");
    server.crash_and_restart();
    let mut client = server.client();
    wait_for("a cluster that serves all slots", || {
        client.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
    });
    client.assert_error("GRACE", "DLOCK.ACQUIRE gate bob 60000");
}
