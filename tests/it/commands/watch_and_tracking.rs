//! WATCH and client tracking see a lock change when its holders change, and at no other time.

use dlock_testkit::{Client, Server, Waiter, start, wait_for};
use redis::{PushKind, Value};

use crate::fixtures::start_with_replica;

/// A client that watches `door`, and one that caches it.
struct Observer {
    watcher: Client,
    tracker: Waiter,
}

impl Observer {
    fn of(server: &Server) -> Self {
        let mut tracker = Waiter::connect(server);
        tracker.ask("HELLO 3");
        tracker.ask("CLIENT TRACKING ON");
        let mut observer = Self {
            watcher: server.client(),
            tracker,
        };
        observer.begin();
        observer
    }

    fn begin(&mut self) {
        self.watcher.ok("WATCH door");
        self.tracker.ask("TYPE door");
    }

    /// Whether both have seen a change since the last call.
    #[track_caller]
    fn has_seen_change(&mut self) -> bool {
        let is_broken = watch_is_broken(&mut self.watcher);
        assert_eq!(self.is_invalidated(), is_broken, "tracking and WATCH agree");
        self.begin();
        is_broken
    }

    fn is_invalidated(&mut self) -> bool {
        self.tracker.send("PING");
        let mut invalidated = false;
        loop {
            match self.tracker.next_reply() {
                Value::Push { kind, .. } => invalidated |= kind == PushKind::Invalidate,
                _ => return invalidated,
            }
        }
    }
}

/// Whether a transaction of a client that watches keys is aborted.
fn watch_is_broken(watcher: &mut Client) -> bool {
    watcher.ok("MULTI");
    watcher.ask::<String>("PING");
    watcher.ask::<Option<Vec<String>>>("EXEC").is_none()
}

/// What happens to `door`, in order, and whether its holders change.
const STEPS: [(&str, bool); 21] = [
    ("DLOCK.ACQUIRE door alice 60000 SHARED", true),
    ("DLOCK.ACQUIRE door alice 60000 SHARED", false),
    ("DLOCK.ACQUIRE door alice 60000 SHARED REQID r1", false),
    ("DLOCK.ACQUIRE door alice 60000 SHARED REQID r1", false),
    ("DLOCK.ACQUIRE door bob 60000", false),
    ("DLOCK.EXTEND door alice 90000", false),
    ("DLOCK.EXTEND door alice 1", false),
    ("DLOCK.RELEASE door alice", false),
    ("DLOCK.RELEASE door alice REQID unknown", false),
    ("DLOCK.OWNER door", false),
    ("DLOCK.INFO door", false),
    ("DLOCK.ACQUIRE door bob 60000 SHARED", true),
    ("DLOCK.RELEASE door bob", true),
    ("DLOCK.RELEASE door alice REQID r1", false),
    ("DLOCK.RELEASE door alice", true),
    ("DLOCK.ACQUIRE door alice 60000", true),
    ("DEL door", true),
    ("DLOCK.ACQUIRE door alice 60000", true),
    ("RENAME door away", true),
    ("RENAME away door", true),
    ("DLOCK.RELEASE door alice ALL", true),
];

#[test]
fn watch_and_tracking_see_changes_of_holders_only() {
    let (server, mut client) = start();
    let mut observer = Observer::of(&server);
    for (command, is_seen) in STEPS {
        client.ask::<Value>(command);
        assert_eq!(observer.has_seen_change(), is_seen, "{command}");
    }
}

#[test]
fn watch_and_tracking_on_replica_see_changes_of_holders_only() {
    let (_primary, replica, mut client, _) = start_with_replica();
    let mut observer = Observer::of(&replica);
    for (command, is_seen) in STEPS {
        client.ask::<Value>(command);
        client.sync();
        assert_eq!(observer.has_seen_change(), is_seen, "{command}");
    }
}

#[test]
fn guard_changes_no_lock_but_what_it_runs_may() {
    let (server, mut client) = start();
    let fence = client.acquire("door alice 60000").fence;
    let mut observer = Observer::of(&server);
    client.ok(&format!("DLOCK.GUARD door alice {fence} SET data 1"));
    client.assert_error("STALE", "DLOCK.GUARD door alice 1 SET data 1");
    client.ask::<u64>(&format!("DLOCK.GUARD door alice {fence}"));
    assert!(!observer.has_seen_change());
    client.ask::<i64>(&format!("DLOCK.GUARD door alice {fence} DEL door"));
    assert!(observer.has_seen_change());
}

#[test]
fn watch_and_tracking_see_hand_over() {
    let (server, replica, mut client, _) = start_with_replica();
    client.acquire("door alice 60000");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    client.sync();
    let mut observers = [Observer::of(&server), Observer::of(&replica)];
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    assert!(!observers[0].has_seen_change(), "a waiter is no holder");
    client.release("door alice");
    bob.granted();
    client.sync();
    assert!(observers.iter_mut().all(Observer::has_seen_change), "a release");
    client.ask::<i64>("DEL door");
    carol.granted();
    assert!(observers[0].has_seen_change(), "a break");
}

#[test]
fn watch_and_tracking_see_expired_leases() {
    let (server, replica, mut client, _) = start_with_replica();
    client.acquire("door alice 60000 SHARED");
    client.sync();
    client.pause_writes_after(&["DLOCK.ACQUIRE door bob 20 SHARED"]);
    client.sync();
    let mut observers = [Observer::of(&server), Observer::of(&replica)];
    client.ok("CLIENT UNPAUSE");
    wait_for("the end of bob's lease", || client.stat("dlock_expired") == 1);
    client.ok("SET mark 1");
    client.sync();
    let is_expected = observers.iter_mut().all(Observer::has_seen_change);
    assert!(is_expected, "one of two holders");

    client.release("door alice");
    client.pause_writes_after(&["DLOCK.ACQUIRE door alice 20"]);
    client.sync();
    observers
        .iter_mut()
        .for_each(|observer| _ = observer.has_seen_change());
    client.ok("CLIENT UNPAUSE");
    wait_for("the sweep", || !client.exists("door"));
    client.ok("SET mark 2");
    client.sync();
    let is_expected = observers.iter_mut().all(Observer::has_seen_change);
    assert!(is_expected, "the last holder");
}

#[test]
fn watch_and_tracking_see_expired_lease_of_contended_lock() {
    let server = Server::start();
    let (mut bob, _) = server.waiter_behind(&["door alice 3000"], "door bob 60000 BLOCK 0");
    let mut observer = Observer::of(&server);
    bob.granted();
    assert!(observer.has_seen_change());
}

#[test]
fn watch_and_tracking_see_raised_fence() {
    let (server, replica, mut client, _) = start_with_replica();
    client.config_set("dlock.quorum", "yes");
    let fence = client.acquire("door alice 60000 REQID r1").fence;
    client.sync();
    let mut observers = [Observer::of(&server), Observer::of(&replica)];
    for (min_fence, is_seen) in [(fence, false), (fence + 1, true), (fence + 1, false)] {
        client.extend(&format!("door alice 60000 REQID r1 MINFENCE {min_fence}"));
        client.sync();
        let seen = observers.each_mut().map(Observer::has_seen_change);
        assert_eq!(seen, [is_seen; 2], "{min_fence}");
    }
}
