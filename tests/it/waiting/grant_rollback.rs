//! A waiter that goes between its grant and its answer: the grant is undone, the next one is served.

use dlock_testkit::{Client, Grant, ReplicationStream, Reply, Server, Waiter, pause, start, wait_for};
use redis::Value;

const APPLY_DOOR: &str = "DLOCK.APPLY door <change>";

/// alice holds `door`, a client that can be killed waits for it.
struct Scene {
    server: Server,
    client: Client,
    waiter: Waiter,
    /// The waiter's client id.
    id: i64,
}

impl Scene {
    fn new(request: &str) -> Self {
        Self::on(Server::start(), request)
    }

    fn on(server: Server, request: &str) -> Self {
        let mut client = server.client();
        client.acquire("door alice 60000");
        let mut waiter = Waiter::connect(&server);
        let id = waiter.id();
        waiter.acquire(request);
        client.wait_for_queue("door", 1);
        Self {
            server,
            client,
            waiter,
            id,
        }
    }

    /// Alice releases, and the waiter is killed, before the server can answer it. Then come more commands.
    fn kill_after_grant_and(&mut self, more: &[&str]) -> Vec<Value> {
        let kill = format!("CLIENT KILL ID {}", self.id);
        self.client
            .batch(&[&["DLOCK.RELEASE door alice", &kill], more].concat())
            .split_off(2)
    }
}

#[track_caller]
fn wait_for_blocked(client: &mut Client, clients: usize) {
    wait_for("clients to be blocked", || {
        client.server_info("clients", "blocked_clients") == clients.to_string()
    });
}

#[test]
fn undelivered_grant_is_rolled_back_and_next_waiter_granted() {
    let mut scene = Scene::new("door bob 60000 BLOCK 0");
    let mut carol = scene.server.waiter("door carol 60000 BLOCK 0");
    let dave = scene.server.waiter("door dave 60000 BLOCK 0");
    scene.client.batch(&[
        "MULTI",
        "DLOCK.RELEASE door alice",
        &format!("CLIENT KILL ID {}", scene.id),
        "EXEC",
    ]);
    assert_eq!(scene.waiter.reply(), Reply::Closed);
    let grant = carol.granted();
    assert_eq!(
        scene.client.lock("door").standing(),
        [("carol".into(), grant.fence, 1)]
    );
    dave.assert_waiting();
    assert_eq!(scene.client.stat("dlock_grants_rolled_back"), 1);
}

#[test]
fn undelivered_grant_without_other_waiter_frees_lock() {
    let mut scene = Scene::new("door bob 60000 BLOCK 0 REQID r1");
    scene.kill_after_grant_and(&[]);
    wait_for("the grant to be undone", || !scene.client.exists("door"));
    assert_eq!(scene.client.stat("dlock_grants_rolled_back"), 1);
}

#[test]
fn many_undelivered_grants_are_rolled_back() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let mut waiters = Vec::new();
    let mut kills = Vec::new();
    for n in 0..20 {
        let mut waiter = Waiter::connect(&server);
        kills.push(format!("CLIENT KILL ID {}", waiter.id()));
        waiter.acquire(&format!("door reader{n} 60000 SHARED BLOCK 0"));
        client.wait_for_queue("door", n + 1);
        waiters.push(waiter);
    }
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let mut commands = vec!["DLOCK.RELEASE door alice"];
    commands.extend(kills.iter().map(String::as_str));
    client.batch(&commands);
    bob.granted();
    assert_eq!(client.lock("door").owners(), ["bob"]);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 20);
}

#[test]
fn rollback_is_replicated_after_grant() {
    let mut scene = Scene::new("door bob 60000 BLOCK 0");
    let mut stream = ReplicationStream::attach(&scene.server);
    let replica = scene.server.replica();
    scene.kill_after_grant_and(&[]);
    wait_for("the grant to be undone", || !scene.client.exists("door"));
    assert_eq!(stream.take(), [APPLY_DOOR, APPLY_DOOR]);
    scene.client.acquire("gate alice 60000");
    scene.client.sync();
    assert!(!replica.client().exists("door"));
}

#[test]
fn only_undelivered_hold_is_rolled_back() {
    let mut scene = Scene::new("door bob 60000 BLOCK 0");
    let mut second = scene.server.waiter("door bob 60000 BLOCK 0");
    scene.kill_after_grant_and(&[]);
    let grant = second.granted();
    wait_for("the grant to be undone", || {
        scene.client.stat("dlock_grants_rolled_back") == 1
    });
    assert_eq!(
        scene.client.lock("door").standing(),
        [("bob".into(), grant.fence, 1)]
    );
}

#[test]
fn released_grant_is_not_rolled_back_again() {
    let mut scene = Scene::new("door bob 60000 BLOCK 0");
    let replies = scene.kill_after_grant_and(&["DLOCK.RELEASE door bob", "DLOCK.ACQUIRE door bob 60000"]);
    let grant = Grant::parse(replies[1].clone()).expect("the lock was free");
    // A grant of later shows that the undoing had its turn.
    scene.client.acquire("gate alice 60000");
    scene.server.waiter("gate bob 60000 BLOCK 20").assert_null();
    assert_eq!(
        scene.client.lock("door").standing(),
        [("bob".into(), grant.fence, 1)]
    );
    assert_eq!(scene.client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn repeated_reqid_before_rollback_keeps_hold() {
    let mut scene = Scene::new("door bob 60000 BLOCK 0 REQID r1");
    let mut carol = scene.server.waiter("door carol 60000 BLOCK 0");
    let replies = scene.kill_after_grant_and(&["DLOCK.ACQUIRE door bob 60000 REQID r1"]);
    match Grant::parse(replies[0].clone()) {
        // Bob was told that he holds the lock: then nobody may take it from him.
        Some(grant) => {
            assert_eq!(grant.holds, 1);
            scene.server.waiter("door dave 60000 BLOCK 50").assert_null();
            assert_eq!(
                scene.client.lock("door").standing(),
                [("bob".into(), grant.fence, 1)]
            );
            carol.assert_waiting();
        }
        // Bob was told to ask again: then it is carol's turn.
        None => assert!(carol.granted().fence > 0),
    }
}

/// The repeated request serves the queue itself, and so grants the request that it repeats.
#[test]
fn repeated_reqid_granted_by_its_own_transition_keeps_hold() {
    let (server, mut client) = start();
    let mut lost = Waiter::connect(&server);
    let kill = format!("CLIENT KILL ID {}", lost.id());
    client.acquire("door alice 2000");
    lost.acquire("door bob 60000 BLOCK 0 REQID r1");
    client.wait_for_queue("door", 1);
    let _carol = server.waiter("door carol 60000 BLOCK 0");
    // Alice's lease ends while the server sleeps: no timer sees it before bob asks again.
    let replies = client.batch(&["DEBUG SLEEP 2.1", "DLOCK.ACQUIRE door bob 60000 REQID r1", &kill]);
    let grant = Grant::parse(replies[1].clone()).expect("bob was first in the queue");
    assert_eq!(lost.reply(), Reply::Closed);
    // A timeout of later shows that an undoing would have had its turn.
    server.waiter("door dave 60000 BLOCK 50").assert_null();
    assert_eq!(client.lock("door").standing(), [("bob".into(), grant.fence, 1)]);
}

#[test]
fn refused_repeated_reqid_keeps_no_hold() {
    let mut scene = Scene::new("door bob 60000 SHARED BLOCK 0 REQID r1");
    let replies = scene.kill_after_grant_and(&["DLOCK.ACQUIRE door bob 60000 REQID r1"]);
    assert!(matches!(replies[0], Value::ServerError(_)), "{replies:?}");
    wait_for("the grant to be undone", || !scene.client.exists("door"));
}

/// What was told to the client that was replaced says nothing about the one that took its place.
#[test]
fn undelivered_grant_to_replacing_client_is_rolled_back() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let mut replaced = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    let (mut bob, mut alice) = (Waiter::connect(&server), Waiter::connect(&server));
    let kill = format!("CLIENT KILL ID {}", bob.id());
    // What both have sent is run in one go when they get their elements, in the order in which they wait for them.
    bob.send("BLPOP start 0\r\nDLOCK.ACQUIRE door bob 60000 BLOCK 0 REQID r1");
    wait_for_blocked(&mut client, 2);
    alice.send(&format!("BLPOP start 0\r\nDLOCK.RELEASE door alice\r\n{kill}"));
    wait_for_blocked(&mut client, 3);
    client.ask::<i64>("RPUSH start 1 2");
    assert!(replaced.error().starts_with("UNBLOCKED "));
    wait_for("the grant to be undone", || !client.exists("door"));
    assert_eq!(client.stat("dlock_grants_rolled_back"), 1);
}

#[test]
fn repeated_reqid_on_new_connection_has_one_hold() {
    let mut scene = Scene::new("door bob 60000 BLOCK 0 REQID r1");
    scene.kill_after_grant_and(&[]);
    // The server may have undone the grant by now, or not.
    let grant = scene.server.client().acquire("door bob 60000 REQID r1");
    assert_eq!(grant.holds, 1);
    scene.server.waiter("door dave 60000 BLOCK 50").assert_null();
    assert_eq!(
        scene.client.lock("door").standing(),
        [("bob".into(), grant.fence, 1)]
    );
}

#[test]
fn rollback_does_not_cancel_later_request_with_same_reqid() {
    let mut scene = Scene::new("door bob 60000 BLOCK 0 REQID r1");
    let mut second = Waiter::connect(&scene.server);
    // One packet: all of it happens before the server sees that the grant was in vain.
    let kill = format!("CLIENT KILL ID {}", scene.id);
    second.send(&format!(
        "DLOCK.RELEASE door alice\r\n{kill}\r\nDEL door\r\nDLOCK.ACQUIRE door carol 60000\r\n\
         DLOCK.ACQUIRE door bob 60000 BLOCK 0 REQID r1"
    ));
    for _ in 0..4 {
        second.next_reply();
    }
    // A timeout of later shows that the undoing had its turn.
    scene.server.waiter("door dave 60000 BLOCK 50").assert_null();
    second.assert_waiting();
    assert_eq!(scene.client.queue("door"), ["bob"]);
    assert_eq!(scene.client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn waiter_unblocked_after_grant_holds_lock_or_is_rolled_back() {
    for how in ["TIMEOUT", "ERROR"] {
        let mut scene = Scene::new("door bob 60000 BLOCK 0");
        let unblock = format!("CLIENT UNBLOCK {} {how}", scene.id);
        scene.client.batch(&["DLOCK.RELEASE door alice", &unblock]);
        match scene.waiter.reply() {
            Reply::Granted(grant) => assert_eq!(
                scene.client.lock("door").standing(),
                [("bob".into(), grant.fence, 1)],
                "{how}"
            ),
            _ => wait_for("the grant to be undone", || !scene.client.exists("door")),
        }
    }
}

#[test]
fn rollback_is_deferred_while_writes_are_paused() {
    let server = Server::with("appendonly yes");
    let mut scene = Scene::on(server, "door bob 60000 BLOCK 0");
    let _replica = scene.server.replica();
    let mut carol = scene.server.waiter("door carol 60000 BLOCK 0");
    scene.kill_after_grant_and(&["CLIENT PAUSE 600000 WRITE"]);
    wait_for_blocked(&mut scene.client, 1);
    // Timeouts are answered during the pause: so the queue has been looked at.
    let mut reader = scene.server.client();
    for _ in 0..20 {
        assert_eq!(reader.lock("door").owners(), ["bob"]);
    }
    carol.assert_waiting();
    scene.client.ok("CLIENT UNPAUSE");
    carol.granted();
    assert_eq!(scene.client.stat("dlock_grants_rolled_back"), 1);
}

#[test]
fn connection_closed_at_grant_does_not_keep_lock() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let bob = server.waiter("door bob 60000 BLOCK 0");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    // While the server sleeps both things happen: it finds them in one pass.
    server.client().send("DEBUG SLEEP 0.3");
    pause(100);
    bob.close();
    client.release("door alice");
    carol.granted();
}

/// The server writes the reply, and only then closes: nothing tells the module that nobody read it.
#[test]
fn grant_to_closing_connection_expires_with_lease() {
    let (server, mut client) = start();
    client.ok("ACL SETUSER eve on nopass ~* +@all");
    client.acquire("door alice 60000");
    let mut eve = Waiter::connect(&server);
    eve.ask("AUTH eve x");
    eve.acquire("door eve 300 BLOCK 0");
    client.wait_for_queue("door", 1);
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    // The server closes the connections of a deleted user at the end of the pass.
    client.batch(&["DLOCK.RELEASE door alice", "ACL DELUSER eve"]);
    assert_eq!(eve.reply(), Reply::Closed);
    carol.granted();
}
