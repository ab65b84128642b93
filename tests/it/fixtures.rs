//! Starting points and checks that several files share.

use dlock_testkit::{Client, Server, Waiter, start, wait_for};
use redis::Value;

/// Configuration lines for an AOF that loses nothing in a crash.
pub const AOF: &str = "appendonly yes\nappendfsync always\n";
pub const NOTHING: [&str; 0] = [];

/// A server where alice holds `door`, and a client of it.
pub fn held_by_alice() -> (Server, Client) {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    (server, client)
}

/// A primary and a replica, and a client of each.
pub fn start_with_replica() -> (Server, Server, Client, Client) {
    let (primary, client) = start();
    let replica = primary.replica();
    let replica_client = replica.client();
    (primary, replica, client, replica_client)
}

/// Waits until no client is blocked. Then no lock may have a queue.
#[track_caller]
pub fn wait_until_none_blocked(client: &mut Client) {
    wait_for("no blocked clients", || {
        client.server_info("clients", "blocked_clients") == "0"
    });
    assert_eq!(client.stat("dlock_waiters"), 0);
    assert_eq!(client.stat("dlock_contended_locks"), 0);
}

/// Waits until this server is a primary.
#[track_caller]
pub fn wait_for_promotion(client: &mut Client) {
    wait_for("the promotion", || {
        client.server_info("replication", "role") == "master"
    });
}

/// Rewrites the AOF and waits until that is done.
pub fn rewrite_aof(client: &mut Client) {
    // A replica rewrites its file by itself after it has taken a snapshot.
    client.wait_for_aof_rewrite();
    client.ask::<Value>("BGREWRITEAOF");
    client.wait_for_aof_rewrite();
}

/// The waiter must be refused with this error code.
#[track_caller]
pub fn assert_refused(waiter: &mut Waiter, code: &str) {
    let error = waiter.error();
    assert!(error.starts_with(&format!("{code} ")), "{error}");
}

/// A client with these rights.
pub fn user(server: &Server, rights: &str) -> Client {
    server
        .client()
        .ok(&format!("ACL SETUSER guest reset on nopass {rights}"));
    let mut client = server.client();
    client.ok("AUTH guest any");
    client
}
