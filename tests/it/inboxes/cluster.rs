//! Inboxes in a cluster: each belongs to one node, and slots move.

use dlock_testkit::{Client, Cluster, Delivery, Inbox, pause, wait_for};
use redis::Value;

use super::shown;

/// Three primaries; alice holds a lock on the first, where bob and carol wait for it through an inbox.
struct Fixture {
    cluster: Cluster,
    old: Client,
    key: String,
    inbox: Inbox,
}

impl Fixture {
    fn new() -> Self {
        let cluster = Cluster::start(3);
        let mut old = cluster.client(0);
        let key = cluster.key_on(0, "door");
        old.acquire(&format!("{key} alice 60000"));
        let inbox = Inbox::make(&cluster.nodes[0], "inbox");
        for owner in ["bob", "carol"] {
            old.enqueue(&format!("{key} {owner} 60000 QUEUE inbox 0 REQID r1"));
        }
        Self {
            cluster,
            old,
            key,
            inbox,
        }
    }

    /// Moves the key and ends the move before the old node can process the queue.
    fn move_now(&mut self) {
        let slot = self.cluster.begin_move(&self.key, 0, 1);
        let (migrate, assign) = (self.cluster.migrate(slot, &self.key), self.cluster.assign(slot));
        self.old.batch(&[&migrate, &assign]);
        self.cluster.client(1).ok(&assign);
    }
}

/// One unassigned slot is enough. It must belong to this node: gossip would restore a slot of another one.
fn take_cluster_down(fixture: &mut Fixture) {
    let other = fixture.cluster.key_on(0, "other-");
    let other: u16 = fixture.old.ask(&format!("CLUSTER KEYSLOT {other}"));
    fixture.old.ok(&format!("CLUSTER DELSLOTS {other}"));
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
