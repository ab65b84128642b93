//! Waiters in a cluster: redirected when their slot moves, never granted by the old node.

use std::time::Duration;

use dlock_testkit::{Client, Cluster, Inbox, Move, Reply, Waiter, pause, wait_for};

/// Three primaries; alice holds a lock on the first, bob and carol wait for it.
struct Fixture {
    cluster: Cluster,
    old: Client,
    key: String,
    fence: u64,
    bob: Waiter,
    carol: Waiter,
}

impl Fixture {
    fn new() -> Self {
        let cluster = Cluster::start(3);
        let mut old = cluster.client(0);
        let key = cluster.key_on(0, "door");
        let fence = old.acquire(&format!("{key} alice 60000")).fence;
        let bob = cluster.nodes[0].waiter(&format!("{key} bob 60000 BLOCK 0"));
        let carol = cluster.nodes[0].waiter(&format!("{key} carol 60000 BLOCK 0"));
        Self {
            cluster,
            old,
            key,
            fence,
            bob,
            carol,
        }
    }

    /// Moves the key and ends the move before the old node can process the queue.
    fn move_now(&mut self, slot: Move) {
        let (migrate, assign) = (self.cluster.migrate(slot, &self.key), self.cluster.assign(slot));
        self.old.batch(&[&migrate, &assign]);
        self.cluster.client(1).ok(&assign);
    }

    /// Both waiters must be refused with this error code, and not granted.
    #[track_caller]
    fn assert_waiters_refused(&mut self, code: &str) -> String {
        let error = self.bob.error();
        assert!(error.starts_with(code), "{error}");
        assert_eq!(self.carol.error(), error);
        assert_eq!(self.old.stat("dlock_grants_from_queue"), 0, "no grant here");
        assert_eq!(self.old.stat("dlock_waiters"), 0);
        error
    }
}

#[test]
fn waiter_of_moved_slot_is_redirected_to_new_node() {
    let mut fixture = Fixture::new();
    let slot = fixture.cluster.begin_move(&fixture.key, 0, 1);
    fixture.move_now(slot);
    let error = fixture.assert_waiters_refused("MOVED ");
    let expected = format!(
        "MOVED {} 127.0.0.1:{}",
        slot.slot,
        fixture.cluster.nodes[1].port()
    );
    assert_eq!(error, expected);
}

/// The module does not know the address that the server would reply.
#[test]
fn waiter_of_moved_slot_gets_tryagain_when_endpoints_are_hostnames() {
    let mut fixture = Fixture::new();
    fixture
        .old
        .config_set("cluster-preferred-endpoint-type", "hostname");
    let slot = fixture.cluster.begin_move(&fixture.key, 0, 1);
    fixture.move_now(slot);
    fixture.assert_waiters_refused("TRYAGAIN ");
    let asked_again = fixture
        .old
        .error(&format!("DLOCK.ACQUIRE {} bob 60000 BLOCK 0", fixture.key));
    let expected = format!("MOVED {} ?:{}", slot.slot, fixture.cluster.nodes[1].port());
    assert_eq!(asked_again, expected);
}

#[test]
fn waiter_retrying_at_new_node_is_granted() {
    let mut fixture = Fixture::new();
    let slot = fixture.cluster.begin_move(&fixture.key, 0, 1);
    fixture.move_now(slot);
    fixture.assert_waiters_refused("MOVED ");
    let mut new = fixture.cluster.client(1);
    let mut bob = fixture.cluster.nodes[1].waiter(&format!("{} bob 60000 BLOCK 0", fixture.key));
    new.assert_sole_holder(&fixture.key, "alice", fixture.fence, 1);
    new.release(&format!("{} alice", fixture.key));
    assert!(bob.granted().fence > fixture.fence);
}

#[test]
fn waiter_of_migrated_key_gets_tryagain() {
    let mut fixture = Fixture::new();
    let slot = fixture.cluster.begin_move(&fixture.key, 0, 1);
    fixture.bob.assert_waiting();
    fixture.old.ok(&fixture.cluster.migrate(slot, &fixture.key));
    fixture.assert_waiters_refused("TRYAGAIN ");
    // A new request is redirected.
    fixture
        .old
        .assert_error("ASK", &format!("DLOCK.ACQUIRE {} bob 60000 BLOCK 0", fixture.key));
    assert!(!fixture.old.server_info("dlock", "dlock_locks").is_empty());
}

#[test]
fn lock_still_in_migrating_slot_is_handed_over() {
    let mut fixture = Fixture::new();
    fixture.cluster.begin_move(&fixture.key, 0, 1);
    assert_eq!(fixture.old.release(&format!("{} alice", fixture.key)), 0);
    fixture.bob.granted();
    assert_eq!(fixture.old.extend(&format!("{} bob 70000", fixture.key)), 70_000);
    fixture.old.release(&format!("{} bob", fixture.key));
    fixture.carol.granted();
}

#[test]
fn waiter_in_migrating_slot_is_granted_at_lease_end_or_gets_tryagain() {
    let cluster = Cluster::start(3);
    let mut old = cluster.client(0);
    let key = cluster.key_on(0, "door");
    old.acquire(&format!("{key} alice 1000"));
    // On a busy machine the lease may end before the move begins.
    let mut bob = cluster.nodes[0].send_acquire(&format!("{key} bob 60000 BLOCK 0"));
    cluster.begin_move(&key, 0, 1);
    match bob.reply() {
        Reply::Granted(_) => {
            assert_eq!(old.lock(&key).owners(), ["bob"]);
        }
        Reply::Error(error) => {
            assert!(error.starts_with("TRYAGAIN "), "{error}");
            let is_expected = !old.ask::<String>("INFO keyspace").contains("db0");
            assert!(is_expected, "the lock is gone");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn waiter_is_redirected_when_another_node_claims_slot() {
    let mut fixture = Fixture::new();
    let slot: u16 = fixture.old.ask(&format!("CLUSTER KEYSLOT {}", fixture.key));
    let mut new = fixture.cluster.client(1);
    // The old node learns of it from the new one, over the bus.
    new.ok(&format!("CLUSTER SETSLOT {slot} NODE {}", fixture.cluster.id(1)));
    new.ask::<String>("CLUSTER BUMPEPOCH");
    let error = fixture.assert_waiters_refused("MOVED ");
    let is_expected = error.ends_with(&format!(":{}", fixture.cluster.nodes[1].port()));
    assert!(is_expected, "{error}");
    assert!(new.acquire(&format!("{} dave 60000", fixture.key)).fence > fixture.fence);
}

/// Bob was sent by ASK to the node to which the slot moves, and waits there. Returns the slot and him.
fn waiter_at_importing_node(cluster: &Cluster, key: &str, lease_ms: u64) -> (Move, Waiter) {
    let mut old = cluster.client(0);
    old.acquire(&format!("{key} alice {lease_ms}"));
    let slot = cluster.begin_move(key, 0, 1);
    old.ok(&cluster.migrate(slot, key));
    old.assert_error("ASK", &format!("DLOCK.ACQUIRE {key} bob 60000 BLOCK 0"));
    let mut bob = Waiter::connect(&cluster.nodes[1]);
    bob.ask("ASKING");
    bob.acquire(&format!("{key} bob 60000 BLOCK 0"));
    // Longer than the time between two looks at the slots.
    assert!(bob.reply_within(Duration::from_millis(2_500)).is_none());
    (slot, bob)
}

#[test]
fn waiter_at_importing_node_is_granted_there() {
    let cluster = Cluster::start(3);
    let key = cluster.key_on(0, "door");
    let (_, mut bob) = waiter_at_importing_node(&cluster, &key, 60_000);
    let mut new = cluster.client(1);
    new.ok("ASKING");
    assert_eq!(new.release(&format!("{key} alice")), 0);
    bob.granted();
}

#[test]
fn waiter_at_importing_node_is_granted_at_lease_end() {
    let cluster = Cluster::start(3);
    let key = cluster.key_on(0, "door");
    let (_, mut bob) = waiter_at_importing_node(&cluster, &key, 7_000);
    bob.granted();
}

#[test]
fn waiter_at_importing_node_stays_when_slot_arrives() {
    let cluster = Cluster::start(3);
    let key = cluster.key_on(0, "door");
    let (slot, mut bob) = waiter_at_importing_node(&cluster, &key, 60_000);
    let assign = cluster.assign(slot);
    let mut new = cluster.client(1);
    new.ok(&assign);
    cluster.client(0).ok(&assign);
    assert!(bob.reply_within(Duration::from_millis(1_500)).is_none());
    new.release(&format!("{key} alice"));
    bob.granted();
}

#[test]
fn waiter_at_importing_node_is_redirected_when_migration_is_cancelled() {
    let cluster = Cluster::start(3);
    let key = cluster.key_on(0, "door");
    let (slot, mut bob) = waiter_at_importing_node(&cluster, &key, 60_000);
    for node in [1, 0] {
        cluster
            .client(node)
            .ok(&format!("CLUSTER SETSLOT {} STABLE", slot.slot));
    }
    let error = bob.error();
    assert!(error.starts_with("MOVED "), "{error}");
}

#[test]
fn waiters_get_clusterdown_when_cluster_is_down() {
    let mut fixture = Fixture::new();
    // One unassigned slot is enough. It must belong to this node: gossip would restore a slot of another one.
    let other = fixture.cluster.key_on(0, "other-");
    let other: u16 = fixture.old.ask(&format!("CLUSTER KEYSLOT {other}"));
    let slot: u16 = fixture.old.ask(&format!("CLUSTER KEYSLOT {}", fixture.key));
    assert_ne!(other, slot);
    fixture.old.ok(&format!("CLUSTER DELSLOTS {other}"));
    fixture.assert_waiters_refused("CLUSTERDOWN ");
}

#[test]
fn cluster_failover_unblocks_waiters_and_keeps_lock() {
    let mut fixture = Fixture::new();
    let mut replica = fixture.cluster.add_replica(0);
    for n in 0..10 {
        let key = fixture.cluster.key_on(0, &format!("short{n}-"));
        fixture.old.acquire(&format!("{key} alice {}", 100 + 100 * n));
    }
    fixture.cluster.fail_over(&mut replica);
    fixture.assert_waiters_refused("UNBLOCKED ");
    fixture.cluster.nodes[0].assert_alive();
    wait_for("the new primary", || {
        replica.call(&format!("DLOCK.OWNER {}", fixture.key)).is_ok()
            && replica.server_info("replication", "role") == "master"
    });
    replica.assert_sole_holder(&fixture.key, "alice", fixture.fence, 1);
}

#[test]
fn fences_keep_rising_when_slot_moves_to_node_with_lagging_counter() {
    let cluster = Cluster::start(3);
    let (mut old, mut new) = (cluster.client(0), cluster.client(1));
    // The counter of the new node is set here, that of the old one later.
    new.acquire(&format!("{} alice 60000", cluster.key_on(1, "early")));
    pause(20);
    let key = cluster.key_on(0, "door");
    let mut last = old.acquire(&format!("{key} alice 60000")).fence;
    for n in 0..200 {
        let mut waiter = cluster.nodes[0].waiter(&format!("{key} owner{n} 60000 BLOCK 0"));
        let holder = old.owner(&key).expect("a holder");
        old.release(&format!("{key} {holder}"));
        last = waiter.granted().fence;
    }
    let holder = old.owner(&key).expect("a holder");
    old.release(&format!("{key} {holder}"));
    let slot = cluster.begin_move(&key, 0, 1);
    let assign = cluster.assign(slot);
    new.ok(&assign);
    old.ok(&assign);
    assert!(new.acquire(&format!("{key} bob 60000")).fence > last);
    let mut carol = cluster.nodes[1].waiter(&format!("{key} carol 60000 BLOCK 0"));
    new.release(&format!("{key} bob"));
    assert!(carol.granted().fence > last + 1);
}

#[test]
fn due_waiter_of_another_slot_is_processed_from_within_acquire() {
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    client.acquire("gate alice 60000");
    let mut bob = cluster.nodes[0].waiter("gate bob 60000 BLOCK 2000");
    let dave = cluster.nodes[0].waiter("gate dave 60000 BLOCK 60000");
    // When carol's request for another slot arrives, bob has timed out, and no timer has processed it yet.
    client.batch(&["DEBUG SLEEP 2.1", "DLOCK.ACQUIRE door carol 1000 BLOCK 100"]);
    bob.assert_null();
    dave.assert_waiting();
    assert_eq!(client.ask::<i64>("DBSIZE"), 2, "gate and door");
}

/// How often the module has asked the server whether it may grant a lock.
fn probes(client: &mut Client) -> i64 {
    let stats = client.server_info("commandstats", "cmdstat_dlock.probe");
    let calls = stats.split(',').find_map(|field| field.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

#[test]
fn contended_locks_of_cluster_cost_little_while_nothing_happens() {
    const LOCKS: i64 = 2_000;
    const SECONDS: u64 = 3;
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let mut inbox = Inbox::make(&cluster.nodes[0], "inbox");
    for n in 0..LOCKS {
        client.acquire(&format!("door{n} alice 600000"));
        client.enqueue(&format!("door{n} bob 600000 QUEUE inbox 0 REQID r{n}"));
    }
    // The module may look at all of them once, when it learns its slots.
    pause(1_500);
    let before = probes(&mut client);
    pause(SECONDS * 1_000);
    let asked = probes(&mut client) - before;
    assert!(asked < LOCKS / 2, "{asked} times in {SECONDS} s");
    client.release("door7 alice");
    assert_eq!(inbox.take(1)[0].id, "r7");
}
