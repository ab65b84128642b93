//! CLIENT UNBLOCK for a waiter that was answered a moment before, in the same pass of the server's loop.

use dlock_testkit::{Client, Reply, Server, Waiter, start, wait_for};

/// alice holds `door` and `gate`; bob waits for `door`, and has sent more.
struct Scene {
    server: Server,
    client: Client,
    bob: Waiter,
    /// Bob's client id.
    id: i64,
}

impl Scene {
    fn new(more: &str) -> Self {
        let (server, mut client) = start();
        client.acquire("door alice 60000");
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

    /// Alice releases `door`, and bob is unblocked, before the server can answer him.
    fn unblock_after_grant(&mut self, how: &str) {
        let unblock = format!("CLIENT UNBLOCK {} {how}", self.id);
        self.client.batch(&["DLOCK.RELEASE door alice", &unblock]);
    }

    /// The same, when alice has waited herself: the server then runs what she sent, and what bob sent, in one go.
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

/// On Redis 7.0 the server forgets bob's answer. That to his next command must not stand in for it.
#[test]
fn next_reply_is_not_mistaken_for_reply_to_acquire() {
    for how in ["TIMEOUT", "ERROR"] {
        let mut scene = Scene::new("PING");
        scene.unblock_after_grant(how);
        match scene.bob.reply() {
            Reply::Granted(grant) => assert_eq!(
                scene.client.lock("door").standing(),
                [("bob".into(), grant.fence, 1)]
            ),
            _ => wait_for("the grant to be undone", || !scene.client.exists("door")),
        }
    }
}

/// Whatever closes bob's connection must not do so while his next command runs.
#[test]
fn client_with_pipelined_commands_can_be_unblocked() {
    let next = [
        "DLOCK.ACQUIRE gate bob 60000 BLOCK 0",
        "DLOCK.ACQUIRE gate bob 60000",
        "EVAL \"return redis.call('DLOCK.ACQUIRE', 'gate', 'bob', '60000')\" 0",
    ];
    for next in next {
        for how in ["TIMEOUT", "ERROR"] {
            let mut scene = Scene::new(next);
            scene.unblock_after_grant_in_one_go(how);
            scene.bob.close();
            wait_for("nobody to wait", || {
                scene.client.stat("dlock_waiters") == 0
                    && scene.client.server_info("clients", "blocked_clients") == "0"
            });
            scene.server.assert_alive();
        }
    }
}
