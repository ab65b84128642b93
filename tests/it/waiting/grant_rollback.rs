//! A waiter that disconnects or is unblocked between its grant and its reply. More of it is in `tests/rules`.

use dlock_testkit::{Client, Grant, Reply, Server, Waiter, start, wait_for};

use crate::fixtures::{assert_refused, held_by_alice};

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
        let (server, mut client) = start();
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
}

#[track_caller]
fn wait_for_blocked(client: &mut Client, clients: usize) {
    wait_for("clients to be blocked", || {
        client.server_info("clients", "blocked_clients") == clients.to_string()
    });
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
