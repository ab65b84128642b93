//! Waiters belong to a key in a database: SWAPDB, MOVE and FLUSHDB.

use dlock_testkit::{Client, Server, Waiter};
use redis::Value;

use crate::fixtures::assert_refused;

const HERE: u32 = 9;
const THERE: u32 = 11;

struct Fixture {
    server: Server,
    here: Client,
    there: Client,
}

impl Fixture {
    fn new() -> Self {
        let server = Server::start();
        let (mut here, mut there) = (server.client(), server.client());
        here.ok(&format!("SELECT {HERE}"));
        there.ok(&format!("SELECT {THERE}"));
        Self { server, here, there }
    }

    fn waiter(&self, db: u32, args: &str) -> Waiter {
        self.server.waiter_in(db, args)
    }

    fn swap(&mut self) {
        self.here.ok(&format!("SWAPDB {HERE} {THERE}"));
    }
}

#[test]
fn same_key_in_two_databases_has_two_queues() {
    let mut fixture = Fixture::new();
    fixture.here.acquire("door alice 60000");
    fixture.there.acquire("door alice 60000");
    let mut bob = fixture.waiter(HERE, "door bob 60000 BLOCK 0");
    let mut carol = fixture.waiter(THERE, "door carol 60000 BLOCK 0");
    fixture.there.release("door alice");
    carol.granted();
    bob.assert_waiting();
    fixture.here.release("door alice");
    bob.granted();
    assert_eq!(fixture.here.owner("door").as_deref(), Some("bob"));
    assert_eq!(fixture.there.owner("door").as_deref(), Some("carol"));
}

#[test]
fn swapdb_away_grants_to_waiter() {
    for swap in [format!("SWAPDB {HERE} {THERE}"), format!("SWAPDB {THERE} {HERE}")] {
        let mut fixture = Fixture::new();
        let fence = fixture.here.acquire("door alice 60000").fence;
        let mut bob = fixture.waiter(HERE, "door bob 60000 BLOCK 0");
        fixture.here.ok(&swap);
        assert!(bob.granted().fence > fence, "{swap}");
        assert_eq!(fixture.here.owner("door").as_deref(), Some("bob"));
        let standing = fixture.there.lock("door").standing();
        assert_eq!(standing, [("alice".into(), fence, 1)], "the old lock has moved");
    }
}

#[test]
fn swapped_in_lock_is_waited_for() {
    let mut fixture = Fixture::new();
    fixture.here.acquire("door alice 60000");
    fixture.there.acquire("door carol 60000");
    let mut bob = fixture.waiter(HERE, "door bob 60000 BLOCK 0");
    fixture.swap();
    assert_eq!(fixture.here.try_acquire("door dave 60000"), None);
    bob.assert_waiting();
    fixture.there.release("door alice");
    bob.assert_waiting();
    fixture.here.release("door carol");
    bob.granted();
}

#[test]
fn swapped_in_type_refuses_waiter_as_wrongtype() {
    let mut fixture = Fixture::new();
    fixture.here.acquire("door alice 60000");
    fixture.there.ok("SET door text");
    let mut bob = fixture.waiter(HERE, "door bob 60000 BLOCK 0");
    fixture.swap();
    assert_refused(&mut bob, "WRONGTYPE");
}

#[test]
fn swapdb_there_and_back_changes_nothing() {
    let mut fixture = Fixture::new();
    fixture.here.acquire("door alice 60000");
    let mut bob = fixture.waiter(HERE, "door bob 60000 BLOCK 0");
    let swap = format!("SWAPDB {HERE} {THERE}");
    fixture.here.batch(&[&swap, &swap]);
    assert_eq!(fixture.here.try_acquire("door dave 60000"), None);
    bob.assert_waiting();
    fixture.here.release("door alice");
    bob.granted();
}

#[test]
fn swapdb_grants_to_waiters_of_both_databases() {
    let mut fixture = Fixture::new();
    fixture.here.acquire("door alice 60000");
    fixture.there.acquire("gate alice 60000");
    let mut bob = fixture.waiter(HERE, "door bob 60000 BLOCK 0");
    let mut carol = fixture.waiter(THERE, "gate carol 60000 BLOCK 0");
    fixture.swap();
    bob.granted();
    carol.granted();
    assert_eq!(fixture.here.owner("door").as_deref(), Some("bob"));
    assert_eq!(fixture.there.owner("gate").as_deref(), Some("carol"));
    assert_eq!(fixture.here.owner("gate").as_deref(), Some("alice"));
}

#[test]
fn lease_of_swapped_in_lock_wakes_waiter() {
    let mut fixture = Fixture::new();
    fixture.here.acquire("door alice 60000");
    fixture.there.acquire("door carol 400");
    let mut bob = fixture.waiter(HERE, "door bob 60000 BLOCK 0");
    fixture.swap();
    bob.granted();
}

#[test]
fn moved_lock_grants_to_waiters_of_both_databases() {
    let mut fixture = Fixture::new();
    fixture.here.acquire("door alice 60000");
    let mut bob = fixture.waiter(HERE, "door bob 60000 BLOCK 0");
    assert_eq!(fixture.here.ask::<i64>(&format!("MOVE door {THERE}")), 1);
    bob.granted();
    let mut carol = fixture.waiter(THERE, "door carol 60000 BLOCK 0");
    fixture.there.release("door alice");
    carol.granted();
}

#[test]
fn flushdb_grants_only_to_waiters_of_its_database() {
    let mut fixture = Fixture::new();
    fixture.here.acquire("door alice 60000");
    fixture.there.acquire("door alice 60000");
    let mut bob = fixture.waiter(HERE, "door bob 60000 BLOCK 0");
    let mut carol = fixture.waiter(THERE, "door carol 60000 BLOCK 0");
    fixture.there.ask::<Value>("FLUSHDB");
    carol.granted();
    assert_eq!(fixture.here.try_acquire("door dave 60000"), None);
    bob.assert_waiting();
    fixture.here.ask::<Value>("FLUSHALL");
    bob.granted();
    assert_eq!(fixture.there.owner("door"), None, "flushed, and no waiters");
}
