//! Encoding is skipped while there is no AOF and no replica: one that is added later misses nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use dlock_testkit::{Client, Server, start_with, wait_for};

/// A server that has noticed that it has no AOF and no replicas.
fn start_without_consumers(lines: &str) -> (Server, Client) {
    let (server, mut client) = start_with(lines);
    wait_for_refresh(&mut client);
    (server, client)
}

/// The tick that removes an expired lock has refreshed the list of consumers before.
fn wait_for_refresh(client: &mut Client) {
    client.acquire("ended alice 1");
    wait_for("a tick", || !client.exists("ended"));
}

/// The digest of all locks, without their leases.
fn digest(client: &mut Client) -> String {
    client.ask("DEBUG DIGEST")
}

/// Grants locks continuously while `act` runs. Returns how many.
fn while_granting(server: &Server, act: impl FnOnce()) -> usize {
    let stop = AtomicBool::new(false);
    let mut granting = server.client();
    thread::scope(|scope| {
        let granter = scope.spawn(|| {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                granting.acquire(&format!("lock{count} owner{count} 600000"));
                granting.acquire(&format!("lock{count} owner{count} 600000"));
                count += 1;
            }
            count
        });
        act();
        stop.store(true, Ordering::Relaxed);
        granter.join().expect("all grants succeed")
    })
}

#[test]
fn unreplicated_grant_counts_as_unsaved_change() {
    let (_server, mut client) = start_without_consumers("");
    let before: u64 = client.server_number("persistence", "rdb_changes_since_last_save");
    client.acquire("door alice 60000");
    let after: u64 = client.server_number("persistence", "rdb_changes_since_last_save");
    assert_eq!(after, before + 1);
}

/// The first PSYNC creates the backlog, seconds before the server forks for a snapshot. SAVE does not fork.
#[test]
fn replica_started_from_save_has_later_grants() {
    let (server, mut client) = start_without_consumers("repl-diskless-sync-delay 600");
    let mut first_replica = server.client();
    // The delay is for replicas that take a snapshot from a socket.
    first_replica.ok("REPLCONF capa eof");
    first_replica.send("PSYNC ? -1");
    let mut observer = server.client();
    wait_for("a backlog", || {
        observer.server_info("replication", "repl_backlog_active") == "1"
    });
    client.batch(&["SAVE", "DLOCK.ACQUIRE door alice 600000"]);
    let lines = format!("replicaof 127.0.0.1 {}", server.port());
    let replica = Server::on_copy_of(server.directory(), &lines).expect("a replica starts from the snapshot");
    replica.wait_until_linked();
    assert_eq!(client.server_info("stats", "sync_partial_ok"), "1");
    let mut on_replica = replica.client();
    wait_for("the lock", || on_replica.exists("door"));
    assert_eq!(on_replica.owner("door").as_deref(), Some("alice"));
}

#[test]
fn aof_enabled_during_grants_has_all_locks() {
    let (mut server, mut client) = start_without_consumers("");
    let count = while_granting(&server, || {
        client.ok("CONFIG SET appendonly yes");
        client.ok("CONFIG SET appendfsync always");
        client.wait_for_aof_rewrite();
    });
    assert!(count > 0);
    client.acquire("last alice 600000");
    let before = digest(&mut client);
    server.add_config("appendonly yes");
    server.crash_and_restart();
    assert_eq!(digest(&mut server.client()), before);
}

#[test]
fn aof_enabled_in_multi_has_grants_before_and_after() {
    let (mut server, mut client) = start_without_consumers("");
    for command in [
        "MULTI",
        "DLOCK.ACQUIRE before alice 600000",
        "CONFIG SET appendonly yes",
        "DLOCK.ACQUIRE after alice 600000",
        "EXEC",
    ] {
        client.call(command).expect("no command fails");
    }
    client.acquire("later alice 600000");
    client.wait_for_aof_rewrite();
    // By default the server puts off a write while the disk is busy.
    client.ok("CONFIG SET appendfsync always");
    client.acquire("last alice 600000");
    let before = digest(&mut client);
    server.add_config("appendonly yes");
    server.crash_and_restart();
    assert_eq!(digest(&mut server.client()), before);
}

#[test]
fn replica_resumed_after_primary_restart_has_first_grant() {
    let mut server = Server::with("save 3600 1");
    let replica = server.replica();
    let mut client = server.client();
    client.acquire("first alice 600000");
    client.sync();
    server.restart();
    let mut client = server.client();
    client.acquire("second alice 600000");
    let mut on_replica = replica.client();
    wait_for("the second lock", || on_replica.exists("second"));
    assert_eq!(digest(&mut on_replica), digest(&mut client));
}
