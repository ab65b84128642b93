//! Starting points and checks that several files share.

use dlock_testkit::{Client, Server, Waiter, start, wait_for};
use redis::Value;

/// Configuration lines for an AOF that loses nothing in a crash.
pub const AOF: &str = "appendonly yes\nappendfsync always\n";
/// What a replica receives for each change of `door`.
pub const APPLY_DOOR: &str = "DLOCK.APPLY door <change>";
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

/// Whether a transaction of a client that watches keys is aborted.
pub fn watch_is_broken(watcher: &mut Client) -> bool {
    watcher.ok("MULTI");
    watcher.ask::<String>("PING");
    watcher.ask::<Option<Vec<String>>>("EXEC").is_none()
}

/// The waiter must be refused with this error code.
#[track_caller]
pub fn assert_refused(waiter: &mut Waiter, code: &str) {
    let error = waiter.error();
    assert!(error.starts_with(&format!("{code} ")), "{error}");
}

/// Whether this is Redis 8.2 or later. It copies values that are shared.
pub fn is_redis_8_2(client: &mut Client) -> bool {
    let info = client.info_section("server");
    let version = info.get("redis_version").map_or("", String::as_str);
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    !info.contains_key("valkey_version") && version >= (8, 2)
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
