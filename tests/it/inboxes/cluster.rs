//! Inboxes in a cluster: each belongs to one node, and slots move.

use dlock_testkit::{Client, Cluster, Delivery, Inbox, Move, pause, skip, wait_for};
use redis::Value;

use super::shown;

/// Three primaries; alice holds a lock on the first, where bob and carol wait for it through an inbox.
struct Fixture {
    cluster: Cluster,
    old: Client,
    key: String,
    fence: u64,
    inbox: Inbox,
}

impl Fixture {
    fn new() -> Self {
        let cluster = Cluster::start(3);
        let mut old = cluster.client(0);
        let key = cluster.key_on(0, "door");
        let fence = old.acquire(&format!("{key} alice 60000")).fence;
        let inbox = Inbox::make(&cluster.nodes[0], "inbox");
        for owner in ["bob", "carol"] {
            old.enqueue(&format!("{key} {owner} 60000 QUEUE inbox 0 REQID r1"));
        }
        Self {
            cluster,
            old,
            key,
            fence,
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

    /// Both requests must be answered with this error, and not granted.
    #[track_caller]
    fn assert_refused(&mut self, code: &str) -> String {
        let answers = self.inbox.take(2);
        let expected = ["bob", "carol"].map(|owner| format!("error r1 {} {owner} {code}", self.key));
        assert_eq!(shown(&answers), expected);
        assert_eq!(answers[0].error(), answers[1].error());
        assert_eq!(self.old.stat("dlock_grants_from_queue"), 0, "no grant here");
        assert_eq!(self.old.stat("dlock_waiters"), 0);
        self.inbox.assert_empty();
        answers[0].error().to_owned()
    }
}

#[test]
fn request_of_moved_slot_is_answered_moved_with_address() {
    let mut fixture = Fixture::new();
    let slot = fixture.move_now();
    let error = fixture.assert_refused("MOVED");
    let port = fixture.cluster.nodes[1].port();
    assert_eq!(error, format!("MOVED {} 127.0.0.1:{port}", slot.slot));
}

#[test]
fn request_of_moved_slot_is_answered_tryagain_where_address_is_unknown() {
    let mut fixture = Fixture::new();
    fixture
        .old
        .config_set("cluster-preferred-endpoint-type", "hostname");
    fixture.move_now();
    fixture.assert_refused("TRYAGAIN");
}

#[test]
fn request_of_migrated_key_is_answered_tryagain() {
    let mut fixture = Fixture::new();
    let slot = fixture.cluster.begin_move(&fixture.key, 0, 1);
    fixture.inbox.assert_empty();
    fixture.old.ok(&fixture.cluster.migrate(slot, &fixture.key));
    fixture.assert_refused("TRYAGAIN");
}

/// One unassigned slot is enough. It must belong to this node: gossip would restore a slot of another one.
fn take_cluster_down(fixture: &mut Fixture) {
    let other = fixture.cluster.key_on(0, "other-");
    let other: u16 = fixture.old.ask(&format!("CLUSTER KEYSLOT {other}"));
    fixture.old.ok(&format!("CLUSTER DELSLOTS {other}"));
}

#[test]
fn requests_are_answered_clusterdown_when_cluster_is_down() {
    let mut fixture = Fixture::new();
    take_cluster_down(&mut fixture);
    wait_for("the answers", || fixture.old.stat("dlock_inbox_answers") == 2);
    // A call that does not wait needs no slot.
    let answers = fixture.inbox.call("").answers;
    let expected = ["bob", "carol"].map(|owner| format!("error r1 {} {owner} CLUSTERDOWN", fixture.key));
    assert_eq!(shown(&answers), expected);
    assert_eq!(fixture.old.stat("dlock_grants_from_queue"), 0);
    fixture.inbox.assert_empty();
}

/// Redis and Redict themselves unblock all clients of modules then, Valkey only those that wait for keys.
#[test]
fn blocked_reader_of_cluster_that_is_down_gets_clusterdown_and_keeps_its_inbox() {
    let mut fixture = Fixture::new();
    for owner in ["bob", "carol"] {
        fixture.old.release(&format!("{} {owner} REQID r1", fixture.key));
    }
    fixture.inbox.take(2);
    let cursor = fixture.inbox.cursor();
    take_cluster_down(&mut fixture);
    fixture.inbox.send("BLOCK 4000");
    let reply = fixture.inbox.try_receive().expect("an open connection");
    let is_valkey = fixture.old.info_section("server").contains_key("valkey_version");
    match reply {
        Ok(delivery) => assert!(is_valkey && delivery.answers.is_empty(), "{delivery:?}"),
        Err(error) => assert!(!is_valkey && error.starts_with("CLUSTERDOWN "), "{error}"),
    }
    assert_eq!(fixture.inbox.call_at(cursor, "").cursor, cursor);
}

#[test]
fn blocked_reader_of_cluster_that_is_down_loses_no_answers() {
    let mut fixture = Fixture::new();
    let cursor = fixture.inbox.cursor();
    fixture.inbox.block(&mut fixture.old);
    take_cluster_down(&mut fixture);
    match fixture.inbox.try_receive().expect("an open connection") {
        Ok(delivery) => assert!(!delivery.answers.is_empty()),
        Err(error) => assert!(error.starts_with("CLUSTERDOWN "), "{error}"),
    }
    wait_for("the answers", || fixture.old.stat("dlock_inbox_answers") == 2);
    assert_eq!(fixture.inbox.call_at(cursor, "").answers.len(), 2);
    assert_eq!(fixture.old.stat("dlock_inboxes"), 1);
}

#[test]
fn blocked_reader_gets_answers_of_moved_slot() {
    let mut fixture = Fixture::new();
    fixture.inbox.block(&mut fixture.old);
    fixture.move_now();
    let answers = fixture.inbox.receive().answers;
    let codes: Vec<_> = answers
        .iter()
        .map(|answer| answer.error().split(' ').next().map(str::to_owned))
        .collect();
    assert!(
        codes.iter().all(|code| code.as_deref() == Some("MOVED")),
        "{codes:?}"
    );
}

#[test]
fn request_that_was_moved_is_granted_through_inbox_of_new_node() {
    let mut fixture = Fixture::new();
    fixture.move_now();
    fixture.assert_refused("MOVED");
    let (key, mut new) = (fixture.key.clone(), fixture.cluster.client(1));
    let request = format!("{key} bob 60000 QUEUE inbox 0 REQID r1");
    // A node without a reader refuses it: it would wait unread.
    new.assert_error("NOINBOX", &format!("DLOCK.ACQUIRE {request}"));
    let mut inbox = Inbox::make(&fixture.cluster.nodes[1], "inbox");
    assert_ne!(inbox.cursor(), fixture.inbox.cursor());
    new.enqueue(&request);
    new.assert_sole_holder(&key, "alice", fixture.fence, 1);
    new.release(&format!("{key} alice"));
    let answer = inbox.take(1).remove(0);
    assert_eq!(answer.shown(), format!("granted r1 {key} bob"));
    assert!(answer.grant().fence > fixture.fence);
}

#[test]
fn each_node_has_inboxes_of_its_own() {
    let cluster = Cluster::start(3);
    let mut inboxes: Vec<Inbox> = cluster
        .nodes
        .iter()
        .map(|node| Inbox::make(node, "inbox"))
        .collect();
    for (n, inbox) in inboxes.iter_mut().enumerate() {
        let (mut client, key) = (cluster.client(n), cluster.key_on(n, "door"));
        client.acquire(&format!("{key} alice 60000"));
        client.enqueue(&format!("{key} bob 60000 QUEUE inbox 0 REQID r1"));
        client.release(&format!("{key} alice"));
        assert_eq!(shown(&inbox.take(1)), [format!("granted r1 {key} bob")]);
        let cursor = inbox.cursor();
        let mut elsewhere = cluster.client((n + 1) % 3);
        elsewhere.assert_error("NOINBOX", &format!("DLOCK.GRANTS inbox {cursor}"));
    }
    inboxes.iter_mut().for_each(Inbox::assert_empty);
}

#[test]
fn queue_at_node_without_slot_is_redirected_by_server() {
    let cluster = Cluster::start(3);
    let key = cluster.key_on(0, "door");
    let error = cluster
        .client(1)
        .error(&format!("DLOCK.ACQUIRE {key} bob 60000 QUEUE inbox 0 REQID r1"));
    assert!(error.starts_with("MOVED "), "{error}");
}

/// Its slot leaves: the hold goes along, and the answer stays where its reader is.
#[test]
fn unread_grant_of_moved_slot_stays_valid_and_is_released_at_new_node() {
    let mut fixture = Fixture::new();
    let key = fixture.key.clone();
    fixture.old.release(&format!("{key} carol REQID r1"));
    fixture.inbox.take(1);
    fixture.old.release(&format!("{key} alice"));
    fixture.move_now();
    let answer = fixture.inbox.take(1).remove(0);
    assert_eq!(answer.shown(), format!("granted r1 {key} bob"));
    let (grant, mut new) = (answer.grant(), fixture.cluster.client(1));
    new.assert_sole_holder(&key, "bob", grant.fence, 1);
    assert_eq!(
        new.extend(&format!("{key} bob 70000 FENCE {}", grant.fence)),
        70_000
    );
    assert_eq!(
        new.release(&format!("{key} bob FENCE {} REQID r1", grant.fence)),
        0
    );
}

#[test]
fn unread_grant_of_moved_slot_is_not_rolled_back() {
    let mut fixture = Fixture::new();
    let key = fixture.key.clone();
    fixture.inbox.send("TTL 1000");
    fixture.inbox.receive();
    fixture.old.release(&format!("{key} alice"));
    let fence = fixture.old.lock(&key).holder("bob").fence;
    fixture.move_now();
    fixture.old.wait_for_inboxes(0);
    let mut new = fixture.cluster.client(1);
    // Longer than a rollback would take.
    pause(500);
    new.assert_sole_holder(&key, "bob", fence, 1);
    let known = new.acquire(&format!("{key} bob 60000 REQID r1"));
    assert_eq!((known.fence, known.holds), (fence, 1));
    assert_eq!(fixture.old.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn lock_still_in_migrating_slot_is_handed_over_through_inbox() {
    let mut fixture = Fixture::new();
    let key = fixture.key.clone();
    fixture.cluster.begin_move(&key, 0, 1);
    fixture.old.release(&format!("{key} alice"));
    assert_eq!(shown(&fixture.inbox.take(1)), [format!("granted r1 {key} bob")]);
    fixture.old.release(&format!("{key} bob"));
    assert_eq!(shown(&fixture.inbox.take(1)), [format!("granted r1 {key} carol")]);
}

#[test]
fn queue_after_asking_waits_at_importing_node() {
    let cluster = Cluster::start(3);
    let key = cluster.key_on(0, "door");
    let (mut old, mut new) = (cluster.client(0), cluster.client(1));
    old.acquire(&format!("{key} alice 60000"));
    let slot = cluster.begin_move(&key, 0, 1);
    old.ok(&cluster.migrate(slot, &key));
    old.assert_error(
        "ASK",
        &format!("DLOCK.ACQUIRE {key} bob 60000 QUEUE inbox 0 REQID r1"),
    );
    let mut inbox = Inbox::make(&cluster.nodes[1], "inbox");
    new.ok("ASKING");
    new.enqueue(&format!("{key} bob 60000 QUEUE inbox 0 REQID r1"));
    let assign = cluster.assign(slot);
    new.ok(&assign);
    old.ok(&assign);
    assert_eq!(inbox.call("BLOCK 1500").answers, []);
    new.release(&format!("{key} alice"));
    assert_eq!(shown(&inbox.take(1)), [format!("granted r1 {key} bob")]);
}

#[test]
fn node_that_becomes_replica_ends_its_inboxes() {
    let mut fixture = Fixture::new();
    let key = fixture.key.clone();
    let mut replica = fixture.cluster.add_replica(0);
    fixture.inbox.block(&mut fixture.old);
    fixture.cluster.fail_over(&mut replica);
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
    wait_for("no waiters", || fixture.old.stat("dlock_waiters") == 0);
    assert_eq!(fixture.old.stat("dlock_inboxes"), 0);
    assert_eq!(fixture.old.stat("dlock_grants_from_queue"), 0);
    replica.assert_sole_holder(&key, "alice", fixture.fence, 1);
    let promoted = fixture.cluster.nodes.len() - 1;
    let mut inbox = Inbox::make(&fixture.cluster.nodes[promoted], "inbox");
    replica.enqueue(&format!("{key} bob 60000 QUEUE inbox 0 REQID r1"));
    replica.release(&format!("{key} alice"));
    assert_eq!(shown(&inbox.take(1)), [format!("granted r1 {key} bob")]);
}

#[test]
fn node_that_becomes_replica_keeps_unread_grants_for_new_primary() {
    let mut fixture = Fixture::new();
    let key = fixture.key.clone();
    let mut replica = fixture.cluster.add_replica(0);
    fixture.old.release(&format!("{key} alice"));
    let fence = fixture.old.lock(&key).holder("bob").fence;
    fixture.cluster.fail_over(&mut replica);
    fixture.cluster.nodes[0].assert_alive();
    fixture.inbox.reconnect(&fixture.cluster.nodes[0]);
    assert!(fixture.inbox.error("").starts_with("READONLY "));
    replica.assert_sole_holder(&key, "bob", fence, 1);
    let known = replica.acquire(&format!("{key} bob 60000 REQID r1"));
    assert_eq!((known.fence, known.holds), (fence, 1));
}

#[test]
fn grants_at_replica_of_cluster_is_refused() {
    let mut cluster = Cluster::start(3);
    let mut replica = cluster.add_replica(0);
    for readonly in [false, true] {
        if readonly {
            replica.ok("READONLY");
        }
        replica.assert_error("READONLY", "DLOCK.GRANTS inbox 0");
        replica.assert_error("READONLY", "DLOCK.GRANTS inbox 1 BLOCK 1000");
    }
}

#[test]
fn requests_are_answered_moved_when_atomic_migration_completes() {
    let mut fixture = Fixture::new();
    if fixture.old.call("CLUSTER GETSLOTMIGRATIONS").is_err() {
        return skip("the server has no CLUSTER MIGRATESLOTS");
    }
    let slot: u16 = fixture.old.ask(&format!("CLUSTER KEYSLOT {}", fixture.key));
    let target = fixture.cluster.id(1);
    fixture.old.ok(&format!(
        "CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {target}"
    ));
    fixture.assert_refused("MOVED");
    let mut new = fixture.cluster.client(1);
    new.assert_sole_holder(&fixture.key, "alice", fixture.fence, 1);
}

#[test]
fn grants_is_sent_to_a_node_and_to_no_slot() {
    let cluster = Cluster::start(3);
    // Wherever the name of the inbox would hash to.
    for name in ["a", "b", "c", "d", "e", "f"] {
        for n in 0..3 {
            let made: Value = cluster.client(n).ask(&format!("DLOCK.GRANTS {name} 0 TTL 60000"));
            assert_eq!(Delivery::parse(&made).answers, []);
        }
    }
}
