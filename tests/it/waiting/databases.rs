//! Waiters belong to a name in a database: what SWAPDB, MOVE and FLUSH do around them.

use dlock_testkit::{Client, Server, Waiter};
use redis::Value;

const HERE: u32 = 9;
const THERE: u32 = 11;

struct Scene {
    server: Server,
    here: Client,
    there: Client,
}

impl Scene {
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
    let mut scene = Scene::new();
    scene.here.acquire("door alice 60000");
    scene.there.acquire("door alice 60000");
    let mut bob = scene.waiter(HERE, "door bob 60000 BLOCK 0");
    let mut carol = scene.waiter(THERE, "door carol 60000 BLOCK 0");
    scene.there.release("door alice");
    carol.granted();
    bob.assert_waiting();
    scene.here.release("door alice");
    bob.granted();
    assert_eq!(scene.here.owner("door").as_deref(), Some("bob"));
    assert_eq!(scene.there.owner("door").as_deref(), Some("carol"));
}

#[test]
fn swapdb_away_grants_to_waiter() {
    for swap in [format!("SWAPDB {HERE} {THERE}"), format!("SWAPDB {THERE} {HERE}")] {
        let mut scene = Scene::new();
        let fence = scene.here.acquire("door alice 60000").fence;
        let mut bob = scene.waiter(HERE, "door bob 60000 BLOCK 0");
        scene.here.ok(&swap);
        assert!(bob.granted().fence > fence, "{swap}");
        assert_eq!(scene.here.owner("door").as_deref(), Some("bob"));
        assert_eq!(
            scene.there.lock("door").standing(),
            [("alice".into(), fence, 1)],
            "the old lock is there now"
        );
    }
}

#[test]
fn swapped_in_lock_is_waited_for() {
    let mut scene = Scene::new();
    scene.here.acquire("door alice 60000");
    scene.there.acquire("door carol 60000");
    let mut bob = scene.waiter(HERE, "door bob 60000 BLOCK 0");
    scene.swap();
    assert_eq!(scene.here.try_acquire("door dave 60000"), None);
    bob.assert_waiting();
    scene.there.release("door alice");
    bob.assert_waiting();
    scene.here.release("door carol");
    bob.granted();
}

#[test]
fn swapped_in_type_refuses_waiter_as_wrongtype() {
    let mut scene = Scene::new();
    scene.here.acquire("door alice 60000");
    scene.there.ok("SET door text");
    let mut bob = scene.waiter(HERE, "door bob 60000 BLOCK 0");
    scene.swap();
    let error = bob.error();
    assert!(error.starts_with("WRONGTYPE "), "{error}");
}

#[test]
fn swapdb_there_and_back_changes_nothing() {
    let mut scene = Scene::new();
    scene.here.acquire("door alice 60000");
    let mut bob = scene.waiter(HERE, "door bob 60000 BLOCK 0");
    let swap = format!("SWAPDB {HERE} {THERE}");
    scene.here.batch(&[&swap, &swap]);
    assert_eq!(scene.here.try_acquire("door dave 60000"), None);
    bob.assert_waiting();
    scene.here.release("door alice");
    bob.granted();
}

#[test]
fn swapdb_grants_to_waiters_of_both_databases() {
    let mut scene = Scene::new();
    scene.here.acquire("door alice 60000");
    scene.there.acquire("gate alice 60000");
    let mut bob = scene.waiter(HERE, "door bob 60000 BLOCK 0");
    let mut carol = scene.waiter(THERE, "gate carol 60000 BLOCK 0");
    scene.swap();
    bob.granted();
    carol.granted();
    assert_eq!(scene.here.owner("door").as_deref(), Some("bob"));
    assert_eq!(scene.there.owner("gate").as_deref(), Some("carol"));
    assert_eq!(scene.here.owner("gate").as_deref(), Some("alice"));
}

#[test]
fn lease_of_swapped_in_lock_wakes_waiter() {
    let mut scene = Scene::new();
    scene.here.acquire("door alice 60000");
    scene.there.acquire("door carol 400");
    let mut bob = scene.waiter(HERE, "door bob 60000 BLOCK 0");
    scene.swap();
    bob.granted();
}

#[test]
fn moved_lock_grants_to_waiters_of_both_databases() {
    let mut scene = Scene::new();
    scene.here.acquire("door alice 60000");
    let mut bob = scene.waiter(HERE, "door bob 60000 BLOCK 0");
    assert_eq!(scene.here.ask::<i64>(&format!("MOVE door {THERE}")), 1);
    bob.granted();
    let mut carol = scene.waiter(THERE, "door carol 60000 BLOCK 0");
    scene.there.release("door alice");
    carol.granted();
}

#[test]
fn flushdb_grants_only_to_waiters_of_its_database() {
    let mut scene = Scene::new();
    scene.here.acquire("door alice 60000");
    scene.there.acquire("door alice 60000");
    let mut bob = scene.waiter(HERE, "door bob 60000 BLOCK 0");
    let mut carol = scene.waiter(THERE, "door carol 60000 BLOCK 0");
    scene.there.ask::<Value>("FLUSHDB");
    carol.granted();
    assert_eq!(scene.here.try_acquire("door dave 60000"), None);
    bob.assert_waiting();
    scene.here.ask::<Value>("FLUSHALL");
    bob.granted();
    assert_eq!(scene.there.owner("door"), None, "flushed, and nobody waited");
}
