//! Waiters in a cluster: redirected when their slot moves, never granted by the old node.

use std::time::Duration;

use dlock_testkit::{Client, Cluster, Inbox, Move, Waiter, pause, wait_for};

use crate::fixtures::assert_refused;

/// Longer than the time between two looks at the slots.
const TWO_LOOKS: Duration = Duration::from_millis(1_500);

/// Three primaries; alice holds a lock on the first, where bob waits for it on a connection, and carol through an inbox.
struct Fixture {
    cluster: Cluster,
    old: Client,
    key: String,
    fence: u64,
    bob: Waiter,
    inbox: Inbox,
}

impl Fixture {
    fn new() -> Self {
        let cluster = Cluster::start(3);
        let mut old = cluster.client(0);
        let key = cluster.key_on(0, "door");
        let fence = old.acquire(&format!("{key} alice 60000")).fence;
        let bob = cluster.nodes[0].waiter(&format!("{key} bob 60000 BLOCK 0"));
        let inbox = Inbox::make(&cluster.nodes[0], "inbox");
        old.enqueue(&format!("{key} carol 60000 QUEUE inbox 0 REQID r1"));
        Self {
            cluster,
            old,
            key,
            fence,
            bob,
            inbox,
        }
    }

    /// Moves the key and ends the move before the old node can process the queue.
    fn move_now(&mut self) -> Move {
        let slot = self.cluster.begin_move(&self.key, 0, 1);
        let (migrate, assign) = (self.cluster.migrate(slot, &self.key), self.cluster.assign(slot));
        self.old.batch(&[&migrate, &assign]);
        self.cluster.client(1).ok(&assign);
        slot
    }

    /// Both must be refused with this error code, and not granted. Returns their errors.
    #[track_caller]
    fn assert_refused(&mut self, code: &str) -> [String; 2] {
        let of_bob = self.bob.error();
        wait_for("carol's answer", || self.old.stat("dlock_inbox_answers") == 1);
        // A call that does not wait needs no slot.
        let of_carol = self.inbox.call("").answers[0].error().to_owned();
        self.inbox.assert_empty();
        let errors = [of_bob, of_carol];
        let is_expected = |error: &String| error.split(' ').next() == Some(code);
        assert!(errors.iter().all(is_expected), "{errors:?}");
        assert_eq!(self.old.stat("dlock_grants_from_queue"), 0, "no grant here");
        assert_eq!(self.old.stat("dlock_waiters"), 0);
        errors
    }
}

#[test]
fn waiters_of_moved_slot_are_redirected_to_new_node_and_granted_there() {
    let mut fixture = Fixture::new();
    let slot = fixture.move_now();
    let errors = fixture.assert_refused("MOVED");
    let port = fixture.cluster.nodes[1].port();
    let expected = format!("MOVED {} 127.0.0.1:{port}", slot.slot);
    assert_eq!(errors, [expected.clone(), expected]);
    let (key, node, mut new) = (&fixture.key, &fixture.cluster.nodes[1], fixture.cluster.client(1));
    let queue = format!("{key} carol 60000 QUEUE inbox 0 REQID r1");
    // A node without a reader refuses it: it would wait unread.
    new.assert_error("NOINBOX", &format!("DLOCK.ACQUIRE {queue}"));
    let mut inbox = Inbox::make(node, "inbox");
    assert_ne!(inbox.cursor(), fixture.inbox.cursor());
    let mut bob = node.waiter(&format!("{key} bob 60000 BLOCK 0"));
    new.enqueue(&queue);
    new.assert_sole_holder(key, "alice", fixture.fence, 1);
    new.release(&format!("{key} alice"));
    let fence = bob.granted().fence;
    assert!(fence > fixture.fence);
    new.release(&format!("{key} bob"));
    assert!(inbox.granted().fence > fence);
}

/// The module does not know the address that the server would reply.
#[test]
fn waiters_of_moved_slot_get_tryagain_when_endpoints_are_hostnames() {
    let mut fixture = Fixture::new();
    let hostname = "CONFIG SET cluster-preferred-endpoint-type hostname";
    fixture.old.ok(hostname);
    let slot = fixture.move_now();
    fixture.assert_refused("TRYAGAIN");
    let request = format!("DLOCK.ACQUIRE {} bob 60000 BLOCK 0", fixture.key);
    let expected = format!("MOVED {} ?:{}", slot.slot, fixture.cluster.nodes[1].port());
    assert_eq!(fixture.old.error(&request), expected);
}

#[test]
fn waiters_of_migrated_key_get_tryagain() {
    let mut fixture = Fixture::new();
    let slot = fixture.cluster.begin_move(&fixture.key, 0, 1);
    fixture.bob.assert_waiting();
    fixture.old.ok(&fixture.cluster.migrate(slot, &fixture.key));
    fixture.assert_refused("TRYAGAIN");
    for wait in ["BLOCK 0", "QUEUE inbox 0 REQID r1"] {
        let request = format!("DLOCK.ACQUIRE {} bob 60000 {wait}", fixture.key);
        fixture.old.assert_error("ASK", &request);
    }
}

#[test]
fn lock_still_in_migrating_slot_is_handed_over() {
    let mut fixture = Fixture::new();
    fixture.cluster.begin_move(&fixture.key, 0, 1);
    assert_eq!(fixture.old.release(&format!("{} alice", fixture.key)), 0);
    fixture.bob.granted();
    assert_eq!(fixture.old.extend(&format!("{} bob 70000", fixture.key)), 70_000);
    fixture.old.release(&format!("{} bob", fixture.key));
    fixture.inbox.granted();
}

#[test]
fn waiter_is_redirected_when_another_node_claims_slot() {
    let mut fixture = Fixture::new();
    let slot: u16 = fixture.old.ask(&format!("CLUSTER KEYSLOT {}", fixture.key));
    let mut new = fixture.cluster.client(1);
    // The old node learns of it from the new one, over the bus.
    new.ok(&format!("CLUSTER SETSLOT {slot} NODE {}", fixture.cluster.id(1)));
    new.ask::<String>("CLUSTER BUMPEPOCH");
    let [error, _] = fixture.assert_refused("MOVED");
    let is_expected = error.ends_with(&format!(":{}", fixture.cluster.nodes[1].port()));
    assert!(is_expected, "{error}");
    assert!(new.acquire(&format!("{} dave 60000", fixture.key)).fence > fixture.fence);
}

/// Bob was sent by ASK to the node to which the slot moves, and waits there; behind him carol, through an inbox.
fn waiters_at_importing_node(cluster: &Cluster, key: &str, lease_ms: u64) -> (Move, Waiter, Inbox) {
    let mut old = cluster.client(0);
    old.acquire(&format!("{key} alice {lease_ms}"));
    let slot = cluster.begin_move(key, 0, 1);
    old.ok(&cluster.migrate(slot, key));
    old.assert_error("ASK", &format!("DLOCK.ACQUIRE {key} bob 60000 BLOCK 0"));
    let mut bob = Waiter::connect(&cluster.nodes[1]);
    bob.ask("ASKING");
    bob.acquire(&format!("{key} bob 60000 BLOCK 0"));
    let (inbox, mut new) = (Inbox::make(&cluster.nodes[1], "inbox"), cluster.client(1));
    wait_for("bob in the queue", || new.stat("dlock_waiters") == 1);
    new.ok("ASKING");
    new.enqueue(&format!("{key} carol 60000 QUEUE inbox 0 REQID r1"));
    (slot, bob, inbox)
}

#[test]
fn waiters_at_importing_node_are_granted_there_before_and_after_the_slot_arrives() {
    let cluster = Cluster::start(3);
    let key = cluster.key_on(0, "door");
    let (slot, mut bob, mut inbox) = waiters_at_importing_node(&cluster, &key, 60_000);
    let mut new = cluster.client(1);
    assert!(bob.reply_within(TWO_LOOKS).is_none());
    new.ok("ASKING");
    assert_eq!(new.release(&format!("{key} alice")), 0);
    bob.granted();
    let assign = cluster.assign(slot);
    new.ok(&assign);
    cluster.client(0).ok(&assign);
    let looks = format!("BLOCK {}", TWO_LOOKS.as_millis());
    assert_eq!(inbox.call(&looks).answers, []);
    new.release(&format!("{key} bob"));
    inbox.granted();
}

#[test]
fn waiters_at_importing_node_are_redirected_when_migration_is_cancelled() {
    let cluster = Cluster::start(3);
    let key = cluster.key_on(0, "door");
    let (slot, mut bob, mut inbox) = waiters_at_importing_node(&cluster, &key, 60_000);
    assert!(bob.reply_within(TWO_LOOKS).is_none());
    for node in [1, 0] {
        let stable = format!("CLUSTER SETSLOT {} STABLE", slot.slot);
        cluster.client(node).ok(&stable);
    }
    let error = bob.error();
    assert!(error.starts_with("MOVED "), "{error}");
    assert_eq!(inbox.take(1)[0].error(), error);
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
    fixture.assert_refused("CLUSTERDOWN");
}

#[test]
fn cluster_failover_unblocks_waiters_ends_inboxes_and_keeps_lock() {
    let mut fixture = Fixture::new();
    let key = fixture.key.clone();
    let mut replica = fixture.cluster.add_replica(0);
    for n in 0..10 {
        let key = fixture.cluster.key_on(0, &format!("short{n}-"));
        fixture.old.acquire(&format!("{key} alice {}", 100 + 100 * n));
    }
    fixture.inbox.block(&mut fixture.old);
    fixture.cluster.fail_over(&mut replica);
    assert_refused(&mut fixture.bob, "UNBLOCKED");
    if let Some(reply) = fixture.inbox.try_receive() {
        let error = reply.expect_err("no reply to a reader of a replica");
        assert!(error.starts_with("UNBLOCKED "), "{error}");
    }
    fixture.cluster.nodes[0].assert_alive();
    fixture.inbox.reconnect(&fixture.cluster.nodes[0]);
    for cursor in [fixture.inbox.cursor(), 0] {
        let error = fixture.inbox.error_at(cursor, "BLOCK 1000");
        assert!(error.starts_with("READONLY "), "{error}");
    }
    fixture.old.ok("READONLY");
    fixture.old.assert_error("READONLY", "DLOCK.GRANTS inbox 0");
    wait_for("no waiters", || fixture.old.stat("dlock_waiters") == 0);
    assert_eq!(fixture.old.stat("dlock_inboxes"), 0);
    assert_eq!(fixture.old.stat("dlock_grants_from_queue"), 0);
    replica.assert_sole_holder(&key, "alice", fixture.fence, 1);
    let mut inbox = Inbox::make(fixture.cluster.nodes.last().expect("the replica"), "inbox");
    replica.enqueue(&format!("{key} bob 60000 QUEUE inbox 0 REQID r1"));
    replica.release(&format!("{key} alice"));
    inbox.granted();
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
    const SECONDS: u64 = 2;
    let cluster = Cluster::start(1);
    let mut client = cluster.client(0);
    let mut inbox = Inbox::make(&cluster.nodes[0], "inbox");
    for n in 0..LOCKS {
        client.acquire(&format!("door{n} alice 600000"));
        client.enqueue(&format!("door{n} bob 600000 QUEUE inbox 0 REQID r{n}"));
    }
    // The module may look at all of them once, when it learns its slots.
    let mut before = probes(&mut client);
    wait_for("the end of a first look", || {
        pause(500);
        before == std::mem::replace(&mut before, probes(&mut client))
    });
    pause(SECONDS * 1_000);
    let asked = probes(&mut client) - before;
    assert!(asked < LOCKS / 2, "{asked} times in {SECONDS} s");
    client.release("door7 alice");
    assert_eq!(inbox.take(1)[0].id, "r7");
}
