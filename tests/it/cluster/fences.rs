//! Fences of free locks whose slots move: no key brings the last one along.

use dlock_testkit::{Client, Cluster, Move, Server, pause, wait_for};

/// Nodes 0 and 1, which know each other's counters, and a key on node 0.
fn start() -> (Cluster, Client, Client, String) {
    let cluster = Cluster::start(3);
    let (first, second) = (cluster.client(0), cluster.client(1));
    let key = cluster.key_on(0, "door");
    (cluster, first, second, key)
}

/// Waits until all that was sent over the bus has arrived. TCP may hold a message back for 40 ms after another one.
fn wait_for_announcements(cluster: &Cluster) {
    let sum = |field: &str| -> u64 {
        let count = |node: &Server| -> u64 {
            let info: String = node.client().ask("CLUSTER INFO");
            let field = format!("cluster_stats_messages_module_{field}:");
            let line = info.lines().find_map(|line| line.strip_prefix(&field));
            line.map_or(0, |count| count.parse().expect("a number"))
        };
        cluster.nodes.iter().map(count).sum()
    };
    wait_for("the announcements", || sum("sent") == sum("received"));
}

/// Acquires the lock and gives it back.
fn grant(client: &mut Client, key: &str) -> u64 {
    let fence = client.acquire(&format!("{key} alice 60000")).fence;
    client.release(&format!("{key} alice"));
    fence
}

fn grant_after_asking(client: &mut Client, key: &str) -> u64 {
    client.ok("ASKING");
    let fence = client.acquire(&format!("{key} bob 60000")).fence;
    client.ok("ASKING");
    client.release(&format!("{key} bob"));
    fence
}

fn finish(cluster: &Cluster, slot: Move) {
    wait_for_announcements(cluster);
    let assign = cluster.assign(slot);
    cluster.client(slot.to).ok(&assign);
    cluster.client(slot.from).ok(&assign);
}

fn cancel(cluster: &Cluster, slot: Move) {
    wait_for_announcements(cluster);
    for node in [slot.to, slot.from] {
        cluster
            .client(node)
            .ok(&format!("CLUSTER SETSLOT {} STABLE", slot.slot));
    }
}

#[test]
fn slot_moved_after_failover_gets_larger_fence() {
    let (mut cluster, mut old, mut second, key) = start();
    grant(&mut old, &key);
    let mut promoted = cluster.add_replica(0);
    cluster.fail_over(&mut promoted);
    let fence = grant(&mut promoted, &key);
    let slot = cluster.begin_move(&key, 3, 1);
    finish(&cluster, slot);
    assert!(grant(&mut second, &key) > fence);
}

#[test]
fn cancelled_migration_gives_larger_fences_at_source() {
    let (cluster, mut source, mut target, key) = start();
    let mut last = grant(&mut source, &key);
    // The counter of the target is at a later time of the clock.
    pause(100);
    for _ in 0..3 {
        wait_for_announcements(&cluster);
        let slot = cluster.begin_move(&key, 0, 1);
        let there = grant_after_asking(&mut target, &key);
        assert!(there > last, "{there} at the target after {last}");
        cancel(&cluster, slot);
        last = grant(&mut source, &key);
        assert!(last > there, "{last} at the source after {there}");
    }
}

#[test]
fn slot_that_returns_at_once_gets_larger_fences() {
    let (cluster, mut first, mut second, key) = start();
    let mut last = grant(&mut first, &key);
    for _ in 0..3 {
        for (from, to, client) in [(0, 1, &mut second), (1, 0, &mut first)] {
            let slot = cluster.begin_move(&key, from, to);
            finish(&cluster, slot);
            let fence = grant(client, &key);
            assert!(fence > last, "{fence} after {last}");
            last = fence;
        }
    }
}
