//! A waiter that disconnects between its grant and its reply: the grant is rolled back, the next waiter is granted.

use dlock_testkit::{Client, Grant, ReplicationStream, Reply, Server, Waiter, pause, start, wait_for};
use redis::Value;

use crate::fixtures::{APPLY_DOOR, assert_refused, held_by_alice};

/// alice holds `door`; a client that can be killed waits for it.
struct Fixture {
    server: Server,
    client: Client,
    waiter: Waiter,
    /// The waiter's client id.
    id: i64,
}

impl Fixture {
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

    /// Releases for alice and kills the waiter before the server can reply to it, then runs more commands.
    fn kill_after_grant_and(&mut self, more: &[&str]) -> Vec<Value> {
        let kill = format!("CLIENT KILL ID {}", self.id);
        let commands = [&["DLOCK.RELEASE door alice", &kill], more].concat();
        self.client.batch(&commands).split_off(2)
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
    let mut fixture = Fixture::new("door bob 60000 BLOCK 0");
    let mut carol = fixture.server.waiter("door carol 60000 BLOCK 0");
    let dave = fixture.server.waiter("door dave 60000 BLOCK 0");
    fixture.client.batch(&[
        "MULTI",
        "DLOCK.RELEASE door alice",
        &format!("CLIENT KILL ID {}", fixture.id),
        "EXEC",
    ]);
    assert_eq!(fixture.waiter.reply(), Reply::Closed);
    let grant = carol.granted();
    fixture.client.assert_sole_holder("door", "carol", grant.fence, 1);
    dave.assert_waiting();
    assert_eq!(fixture.client.stat("dlock_grants_rolled_back"), 1);
}

#[test]
fn undelivered_grant_without_other_waiter_frees_lock() {
    let mut fixture = Fixture::new("door bob 60000 BLOCK 0 REQID r1");
    fixture.kill_after_grant_and(&[]);
    wait_for("the rollback", || !fixture.client.exists("door"));
    assert_eq!(fixture.client.stat("dlock_grants_rolled_back"), 1);
}

#[test]
fn many_undelivered_grants_are_rolled_back() {
    let (server, mut client) = held_by_alice();
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
    let mut fixture = Fixture::new("door bob 60000 BLOCK 0");
    let mut stream = ReplicationStream::attach(&fixture.server);
    let replica = fixture.server.replica();
    fixture.kill_after_grant_and(&[]);
    wait_for("the rollback", || !fixture.client.exists("door"));
    // The server may wrap what it does for a client that is gone in a transaction of its own.
    let mut replicated = stream.take();
    replicated.retain(|command| command != "MULTI" && command != "EXEC");
    assert_eq!(replicated, [APPLY_DOOR, APPLY_DOOR]);
    fixture.client.acquire("gate alice 60000");
    fixture.client.sync();
    assert!(!replica.client().exists("door"));
}

#[test]
fn only_undelivered_hold_is_rolled_back() {
    let mut fixture = Fixture::new("door bob 60000 BLOCK 0");
    let mut second = fixture.server.waiter("door bob 60000 BLOCK 0");
    fixture.kill_after_grant_and(&[]);
    let grant = second.granted();
    wait_for("the rollback", || {
        fixture.client.stat("dlock_grants_rolled_back") == 1
    });
    fixture.client.assert_sole_holder("door", "bob", grant.fence, 1);
}

#[test]
fn released_grant_is_not_rolled_back_again() {
    let mut fixture = Fixture::new("door bob 60000 BLOCK 0");
    let replies = fixture.kill_after_grant_and(&["DLOCK.RELEASE door bob", "DLOCK.ACQUIRE door bob 60000"]);
    let grant = Grant::parse(replies[1].clone()).expect("the lock was free");
    // A later grant shows that a rollback would have happened by now.
    fixture.client.acquire("gate alice 60000");
    let mut other = fixture.server.send_acquire("gate bob 60000 BLOCK 20");
    other.assert_null();
    fixture.client.assert_sole_holder("door", "bob", grant.fence, 1);
    assert_eq!(fixture.client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn repeated_reqid_before_rollback_keeps_hold() {
    let mut fixture = Fixture::new("door bob 60000 BLOCK 0 REQID r1");
    let mut carol = fixture.server.waiter("door carol 60000 BLOCK 0");
    let replies = fixture.kill_after_grant_and(&["DLOCK.ACQUIRE door bob 60000 REQID r1"]);
    match Grant::parse(replies[0].clone()) {
        // Bob has got a reply that he holds the lock: it must not be rolled back.
        Some(grant) => {
            assert_eq!(grant.holds, 1);
            let mut other = fixture.server.send_acquire("door dave 60000 BLOCK 50");
            other.assert_null();
            fixture.client.assert_sole_holder("door", "bob", grant.fence, 1);
            carol.assert_waiting();
        }
        // Bob has got a null: then it is carol's turn.
        None => assert!(carol.granted().fence > 0),
    }
}

/// The repeated request processes the queue itself, and so grants the request that it repeats.
#[test]
fn repeated_reqid_granted_by_its_own_transition_keeps_hold() {
    let (server, mut client) = start();
    let mut lost = Waiter::connect(&server);
    let kill = format!("CLIENT KILL ID {}", lost.id());
    lost.acquire_behind(&["door alice 3000"], "door bob 60000 BLOCK 0 REQID r1");
    let _carol = server.waiter("door carol 60000 BLOCK 0");
    // Alice's lease ends while the server sleeps: no timer sees it before bob asks again.
    let replies = client.batch(&["DEBUG SLEEP 3.1", "DLOCK.ACQUIRE door bob 60000 REQID r1", &kill]);
    let grant = Grant::parse(replies[1].clone()).expect("bob was first in the queue");
    assert_eq!(lost.reply(), Reply::Closed);
    // A later timeout shows that a rollback would have happened by now.
    server.send_acquire("door dave 60000 BLOCK 50").assert_null();
    client.assert_sole_holder("door", "bob", grant.fence, 1);
}

#[test]
fn refused_repeated_reqid_keeps_no_hold() {
    let mut fixture = Fixture::new("door bob 60000 SHARED BLOCK 0 REQID r1");
    let replies = fixture.kill_after_grant_and(&["DLOCK.ACQUIRE door bob 60000 REQID r1"]);
    assert!(matches!(replies[0], Value::ServerError(_)), "{replies:?}");
    wait_for("the rollback", || !fixture.client.exists("door"));
}

/// A reply to the replaced client is no delivery to the one that took its place.
#[test]
fn undelivered_grant_to_replacing_client_is_rolled_back() {
    let (server, mut client) = held_by_alice();
    let mut replaced = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    let (mut bob, mut alice) = (Waiter::connect(&server), Waiter::connect(&server));
    let kill = format!("CLIENT KILL ID {}", bob.id());
    // Once their BLPOPs return, the server runs the pipelined commands of both in one loop pass, in this order.
    bob.send("BLPOP start 0\r\nDLOCK.ACQUIRE door bob 60000 BLOCK 0 REQID r1");
    wait_for_blocked(&mut client, 2);
    alice.send(&format!("BLPOP start 0\r\nDLOCK.RELEASE door alice\r\n{kill}"));
    wait_for_blocked(&mut client, 3);
    client.ask::<i64>("RPUSH start 1 2");
    assert_refused(&mut replaced, "UNBLOCKED");
    wait_for("the rollback", || !client.exists("door"));
    assert_eq!(client.stat("dlock_grants_rolled_back"), 1);
}

#[test]
fn repeated_reqid_on_new_connection_has_one_hold() {
    let mut fixture = Fixture::new("door bob 60000 BLOCK 0 REQID r1");
    fixture.kill_after_grant_and(&[]);
    // The grant may have been rolled back by now, or not.
    let grant = fixture.server.client().acquire("door bob 60000 REQID r1");
    assert_eq!(grant.holds, 1);
    let mut other = fixture.server.send_acquire("door dave 60000 BLOCK 50");
    other.assert_null();
    fixture.client.assert_sole_holder("door", "bob", grant.fence, 1);
}

#[test]
fn rollback_does_not_cancel_later_request_with_same_reqid() {
    let mut fixture = Fixture::new("door bob 60000 BLOCK 0 REQID r1");
    let mut second = Waiter::connect(&fixture.server);
    // One packet: all of it runs before the server notices that the grant was not delivered.
    let kill = format!("CLIENT KILL ID {}", fixture.id);
    second.send(&format!(
        "DLOCK.RELEASE door alice\r\n{kill}\r\nDEL door\r\nDLOCK.ACQUIRE door carol 60000\r\n\
         DLOCK.ACQUIRE door bob 60000 BLOCK 0 REQID r1"
    ));
    for _ in 0..4 {
        second.next_reply();
    }
    // A later timeout shows that the rollback has happened by now.
    let mut other = fixture.server.send_acquire("door dave 60000 BLOCK 50");
    other.assert_null();
    second.assert_waiting();
    assert_eq!(fixture.client.queue("door"), ["bob"]);
    assert_eq!(fixture.client.stat("dlock_grants_rolled_back"), 0);
}

/// On Redis 7.0, TIMEOUT drops the reply.
#[test]
fn waiter_unblocked_after_grant_holds_lock_or_is_rolled_back() {
    for how in ["TIMEOUT", "ERROR"] {
        let mut fixture = Fixture::new("door bob 60000 BLOCK 0");
        let unblock = format!("CLIENT UNBLOCK {} {how}", fixture.id);
        fixture.client.batch(&["DLOCK.RELEASE door alice", &unblock]);
        let (client, bob) = (&mut fixture.client, &mut fixture.waiter);
        wait_for("a reply or the rollback", || {
            !bob.is_silent() || client.stat("dlock_grants_rolled_back") == 1
        });
        if !bob.is_silent()
            && let Reply::Granted(grant) = bob.reply()
        {
            client.assert_sole_holder("door", "bob", grant.fence, 1);
        } else {
            wait_for("the rollback", || client.stat("dlock_grants_rolled_back") == 1);
            assert!(!client.exists("door"));
        }
    }
}

#[test]
fn waiter_with_pipelined_commands_can_be_unblocked_after_grant() {
    let next = [
        "DLOCK.ACQUIRE gate bob 60000 BLOCK 0",
        "DLOCK.ACQUIRE gate bob 60000",
        "EVAL \"return redis.call('DLOCK.ACQUIRE', 'gate', 'bob', '60000')\" 0",
    ];
    for next in next {
        for how in ["TIMEOUT", "ERROR"] {
            let mut fixture = Fixture::new(&format!("door bob 60000 BLOCK 0\r\n{next}"));
            fixture.client.acquire("gate alice 60000");
            let mut alice = Waiter::connect(&fixture.server);
            // She was blocked herself: the server runs her commands and those of bob in one loop pass.
            alice.send(&format!(
                "BLPOP nothing 0.05\r\nDLOCK.RELEASE door alice\r\nCLIENT UNBLOCK {} {how}",
                fixture.id
            ));
            for _ in 0..3 {
                alice.next_reply();
            }
            fixture.waiter.close();
            wait_for("no waiters", || {
                fixture.client.stat("dlock_waiters") == 0
                    && fixture.client.server_info("clients", "blocked_clients") == "0"
            });
            fixture.server.assert_alive();
        }
    }
}

#[test]
fn rollback_is_deferred_while_writes_are_paused() {
    let server = Server::with("appendonly yes");
    let mut fixture = Fixture::on(server, "door bob 60000 BLOCK 0");
    let _replica = fixture.server.replica();
    let mut carol = fixture.server.waiter("door carol 60000 BLOCK 0");
    fixture.kill_after_grant_and(&["CLIENT PAUSE 600000 WRITE"]);
    wait_for_blocked(&mut fixture.client, 1);
    // Timeouts are processed during the pause, so the queue has been as well.
    let mut reader = fixture.server.client();
    for _ in 0..20 {
        assert_eq!(reader.lock("door").owners(), ["bob"]);
    }
    carol.assert_waiting();
    fixture.client.ok("CLIENT UNPAUSE");
    carol.granted();
    assert_eq!(fixture.client.stat("dlock_grants_rolled_back"), 1);
}

#[test]
fn connection_closed_at_grant_does_not_keep_lock() {
    let (server, mut client) = held_by_alice();
    let bob = server.waiter("door bob 60000 BLOCK 0");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    // Both happen while the server sleeps: it finds them in one loop pass.
    server.client().send("DEBUG SLEEP 0.3");
    pause(100);
    bob.close();
    client.release("door alice");
    carol.granted();
}

/// The server writes the reply and then closes the connection: the module cannot know that the reply was not read.
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
