//! Locks in a cluster: slots of other nodes, and slots that move.

use dlock_testkit::{Client, MEET_INTERVAL, Server, every, pause, wait_for};

use crate::fixtures::wait_for_promotion;

const LAST_SLOT: u16 = 16_383;

/// Adds all slots to a node, and waits until it serves them.
fn own_all_slots(client: &mut Client) {
    client.ok(&format!("CLUSTER ADDSLOTSRANGE 0 {LAST_SLOT}"));
    wait_until_served(client);
}

fn wait_until_served(client: &mut Client) {
    wait_for("a cluster that serves all slots", || is_served(client));
}

fn is_served(client: &mut Client) -> bool {
    client.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
}

fn id(client: &mut Client) -> String {
    client.ask("CLUSTER MYID")
}

/// Two nodes that know each other. The first has all slots.
fn two_nodes() -> (Server, Server) {
    let (first, second) = (Server::cluster_node(), Server::cluster_node());
    let (mut one, mut two) = (first.client(), second.client());
    own_all_slots(&mut one);
    let bus = one.config("cluster-port");
    let mut is_due = every(MEET_INTERVAL);
    wait_for("two nodes that know each other", || {
        if is_due() {
            two.ok(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", first.port()));
        }
        is_served(&mut two) && one.ask::<String>("CLUSTER NODES").contains(&id(&mut two))
    });
    (first, second)
}

#[test]
fn commands_work_on_node_owning_slot() {
    let server = Server::cluster_node();
    let mut client = server.client();
    own_all_slots(&mut client);
    let fence = client.acquire("door alice 60000").fence;
    assert_eq!(client.try_acquire("door bob 60000"), None);
    client.extend("door alice 90000");
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
    client.assert_sole_holder("door", "alice", fence, 1);
    client.release("door alice");
    client.acquire("abandoned alice 50");
    wait_for("the sweep", || client.ask::<i64>("DBSIZE") == 0);
}

#[test]
fn unassigned_slot_is_refused_as_clusterdown() {
    let server = Server::cluster_node();
    let mut client = server.client();
    client.assert_error("CLUSTERDOWN", "DLOCK.ACQUIRE door alice 60000");
    client.assert_error("CLUSTERDOWN", "DLOCK.OWNER door");
}

#[test]
fn slot_of_another_node_is_redirected_by_moved() {
    let (first, second) = two_nodes();
    let mut client = second.client();
    for command in [
        "DLOCK.ACQUIRE door alice 60000",
        "DLOCK.RELEASE door alice",
        "DLOCK.EXTEND door alice 60000",
        "DLOCK.OWNER door",
        "DLOCK.INFO door",
    ] {
        let error = client.error(command);
        let is_expected = error.starts_with("MOVED ") && error.ends_with(&format!(":{}", first.port()));
        assert!(is_expected, "{command}: {error}");
    }
}

#[test]
fn migrated_slot_keeps_holders_and_raises_fence() {
    let (first, second) = two_nodes();
    let (mut one, mut two) = (first.client(), second.client());
    let slot: i64 = one.ask("CLUSTER KEYSLOT {door}held");
    let (id_one, id_two) = (id(&mut one), id(&mut two));
    let held = one.acquire("{door}held alice 60000").fence;
    let free = one.acquire("{door}free alice 60000").fence;
    one.release("{door}free alice");

    two.ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {id_one}"));
    one.ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {id_two}"));
    one.ok(&format!(
        "MIGRATE 127.0.0.1 {} {{door}}held 0 10000",
        second.port()
    ));
    one.assert_error("ASK", "DLOCK.OWNER {door}held");
    two.ok(&format!("CLUSTER SETSLOT {slot} NODE {id_two}"));
    one.ok(&format!("CLUSTER SETSLOT {slot} NODE {id_two}"));

    one.assert_error("MOVED", "DLOCK.ACQUIRE {door}held alice 60000");
    two.assert_sole_holder("{door}held", "alice", held, 1);
    assert_eq!(two.try_acquire("{door}held bob 60000"), None);
    assert!(two.acquire("{door}free bob 60000").fence > free);
    two.release("{door}held alice");
    assert!(two.acquire("{door}held bob 60000").fence > held);
}

#[test]
fn slot_moved_to_node_with_lagging_fence_gets_larger_fence() {
    let (first, second) = two_nodes();
    let (mut one, mut two) = (first.client(), second.client());
    let id_two = id(&mut two);
    // Its first grant sets a counter: that of the second node from here on, that of the first later.
    let (other_slot, slot): (i64, i64) = (one.ask("CLUSTER KEYSLOT other"), one.ask("CLUSTER KEYSLOT door"));
    move_slot(&mut one, &mut two, other_slot, &id_two);
    let behind = two.acquire("other alice 60000").fence;
    // The counters start from a clock that has milliseconds: each step takes some.
    pause(5);
    let fence = one.acquire("door alice 60000").fence;
    assert!(fence > behind + 1, "the second node is behind");
    one.release("door alice");
    move_slot(&mut one, &mut two, slot, &id_two);
    pause(5);
    assert!(two.acquire("door alice 60000").fence > fence);
}

#[test]
fn slot_moved_back_gets_larger_fence() {
    let (first, second) = two_nodes();
    let (mut one, mut two) = (first.client(), second.client());
    let (id_one, id_two) = (id(&mut one), id(&mut two));
    let slot: i64 = one.ask("CLUSTER KEYSLOT door");
    let old = one.acquire("door alice 60000").fence;
    one.release("door alice");
    move_slot(&mut one, &mut two, slot, &id_two);
    // A node checks once a second which slots it has.
    pause(2500);
    let away = two.acquire("door alice 60000").fence;
    assert!(away > old + 1000, "the second node is ahead");
    two.release("door alice");
    move_slot(&mut two, &mut one, slot, &id_one);
    pause(5);
    assert!(one.acquire("door alice 60000").fence > away);
}

#[test]
fn restarted_replica_has_no_startup_grace_when_promoted() {
    let (first, mut second) = two_nodes();
    let mut one = first.client();
    second.client().ok(&format!("CLUSTER REPLICATE {}", id(&mut one)));
    second.wait_until_linked();
    let fence = one.acquire("door alice 60000").fence;
    one.sync();
    second.client().ok("SAVE");
    second.add_config("dlock.startup-grace-ms 60000\ndlock.failover-grace-ms 0");
    second.crash_and_restart();
    second.wait_until_linked();
    let mut two = second.client();
    let count = two.stat("dlock_grace_left_ms");
    assert_eq!(count, 0, "it did not start as a primary");
    for client in [&mut one, &mut two] {
        wait_until_served(client);
        wait_for("both nodes to see each other", || {
            let nodes: String = client.ask("CLUSTER NODES");
            nodes.matches(" connected").count() == 2 && !nodes.contains("fail")
        });
    }
    two.ok("CLUSTER FAILOVER");
    wait_for_promotion(&mut two);
    two.assert_sole_holder("door", "alice", fence, 1);
    assert!(two.acquire("gate bob 60000").fence > fence);
}

#[test]
fn restarted_primary_has_startup_grace_in_cluster() {
    let mut server = Server::cluster_node();
    own_all_slots(&mut server.client());
    server.client().acquire("door alice 60000");
    server.client().ok("SAVE");
    server.add_config("dlock.startup-grace-ms 60000");
    server.crash_and_restart();
    let mut client = server.client();
    wait_until_served(&mut client);
    client.assert_error("GRACE", "DLOCK.ACQUIRE gate bob 60000");
}

/// Gives a slot without keys to another node. With a larger epoch than the old one, which may still claim the slot.
fn move_slot(from: &mut Client, to: &mut Client, slot: i64, node: &str) {
    to.ask::<String>("CLUSTER BUMPEPOCH");
    to.ok(&format!("CLUSTER SETSLOT {slot} NODE {node}"));
    from.ok(&format!("CLUSTER SETSLOT {slot} NODE {node}"));
}
