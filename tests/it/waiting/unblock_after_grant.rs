//! CLIENT UNBLOCK of a waiter in the same loop pass as its grant.

use dlock_testkit::{Client, Reply, Server, Waiter, wait_for};

use crate::fixtures::held_by_alice;

/// alice holds `door` and `gate`; bob waits for `door`, and has sent more.
struct Fixture {
    server: Server,
    client: Client,
    bob: Waiter,
    /// Bob's client id.
    id: i64,
}

impl Fixture {
    fn new(more: &str) -> Self {
        let (server, mut client) = held_by_alice();
        client.acquire("gate alice 60000");
        let mut bob = Waiter::connect(&server);
        let id = bob.id();
        bob.send(&format!("DLOCK.ACQUIRE door bob 60000 BLOCK 0\r\n{more}"));
        client.wait_for_queue("door", 1);
        Self {
            server,
            client,
            bob,
            id,
        }
    }

    /// Releases `door` for alice and unblocks bob before the server can reply to him.
    fn unblock_after_grant(&mut self, how: &str) {
        let unblock = format!("CLIENT UNBLOCK {} {how}", self.id);
        self.client.batch(&["DLOCK.RELEASE door alice", &unblock]);
    }

    /// The same from a client that was blocked itself: the server then runs its commands and those of bob in one pass.
    fn unblock_after_grant_in_one_go(&mut self, how: &str) {
        let mut alice = Waiter::connect(&self.server);
        alice.send(&format!(
            "BLPOP nothing 0.05\r\nDLOCK.RELEASE door alice\r\nCLIENT UNBLOCK {} {how}",
            self.id
        ));
        for _ in 0..3 {
            alice.next_reply();
        }
    }
}

/// Redis 7.0 drops bob's reply. That to his next command must not be mistaken for it.
#[test]
fn next_reply_is_not_mistaken_for_reply_to_acquire() {
    for how in ["TIMEOUT", "ERROR"] {
        let mut fixture = Fixture::new("PING");
        fixture.unblock_after_grant(how);
        match fixture.bob.reply() {
            Reply::Granted(grant) => assert_eq!(
                fixture.client.lock("door").standing(),
                [("bob".into(), grant.fence, 1)]
            ),
            _ => wait_for("the rollback", || !fixture.client.exists("door")),
        }
    }
}

/// bob's connection must not be closed while his next command runs.
#[test]
fn client_with_pipelined_commands_can_be_unblocked() {
    let next = [
        "DLOCK.ACQUIRE gate bob 60000 BLOCK 0",
        "DLOCK.ACQUIRE gate bob 60000",
        "EVAL \"return redis.call('DLOCK.ACQUIRE', 'gate', 'bob', '60000')\" 0",
    ];
    for next in next {
        for how in ["TIMEOUT", "ERROR"] {
            let mut fixture = Fixture::new(next);
            fixture.unblock_after_grant_in_one_go(how);
            fixture.bob.close();
            wait_for("no waiters", || {
                fixture.client.stat("dlock_waiters") == 0
                    && fixture.client.server_info("clients", "blocked_clients") == "0"
            });
            fixture.server.assert_alive();
        }
    }
}
