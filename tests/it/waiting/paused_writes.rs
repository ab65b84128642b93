//! Times in which a server must not grant: grants are deferred, nothing crashes, and afterwards they happen.

use std::fs;
use std::time::{Duration, Instant};

use dlock_testkit::{Client, Reply, Server, Waiter, pause, start_with, wait_for};

use crate::fixtures::{AOF, wait_for_promotion};

/// The lease of `door` expires, but its waiter is not granted.
#[track_caller]
fn assert_grant_deferred(client: &mut Client, waiter: &Waiter) {
    client.wait_for_lease_end("door", "alice");
    // The server retries, and must not grant.
    pause(250);
    waiter.assert_waiting();
    assert_eq!(client.owner("door"), None);
    assert_eq!(client.waiting("door"), 1);
}

/// Stops the replica, and begins a failover to it: the primary pauses writes until the replica goes on.
fn begin_failover(client: &mut Client, replica: &Server) {
    client.sync();
    replica.stop();
    client.ok("SET text value");
    client.ok(&format!("FAILOVER TO 127.0.0.1 {}", replica.port()));
}

#[test]
fn paused_writes_defer_grants_with_aof_and_replica() {
    let mut server = Server::with(AOF);
    let replica = server.replica();
    let mut client = server.client();
    client.acquire("gate alice 60000");
    let mut short = server.waiter("gate bob 60000 BLOCK 4000");
    let (mut bob, _) = server.waiter_behind(&["door alice 2000"], "door bob 60000 BLOCK 0");
    client.pause_writes_after(&[]);
    assert_grant_deferred(&mut client, &bob);
    short.assert_null();
    server.assert_alive();
    client.ok("CLIENT UNPAUSE");
    let fence = bob.granted().fence;
    client.acquire("gate alice 60000");
    client.sync();
    replica.client().assert_sole_holder("door", "bob", fence, 1);
}

#[test]
fn paused_clients_defer_grants_with_aof_and_replica() {
    let mut server = Server::with(AOF);
    let replica = server.replica();
    let mut client = server.client();
    let start = Instant::now();
    let (mut bob, _) = server.waiter_behind(&["door alice 2000"], "door bob 60000 BLOCK 0");
    client.batch(&["CLIENT PAUSE 2500 ALL"]);
    let fence = bob.granted().fence;
    assert!(start.elapsed() >= Duration::from_millis(2500));
    server.assert_alive();
    client.acquire("gate alice 60000");
    client.sync();
    replica.client().assert_sole_holder("door", "bob", fence, 1);
}

#[test]
fn planned_failover_unblocks_waiters_while_leases_expire() {
    let mut server = Server::with(AOF);
    let mut replica = server.replica_with(AOF);
    let mut client = server.client();
    let mut waiters: Vec<Waiter> = Vec::new();
    client.acquire("door alice 60000");
    waiters.push(server.waiter("door bob 60000 BLOCK 0"));
    for n in 0..20 {
        let held = format!("lock{n} alice {}", 300 + 20 * n);
        let (waiter, _) = server.waiter_behind(&[&held], &format!("lock{n} bob 60000 BLOCK 0"));
        waiters.push(waiter);
    }
    begin_failover(&mut client, &replica);
    for n in 0..20 {
        client.wait_for_lease_end(&format!("lock{n}"), "alice");
    }
    replica.resume();
    for waiter in &mut waiters {
        match waiter.reply() {
            Reply::Error(error) => assert!(error.starts_with("UNBLOCKED "), "{error}"),
            // Before the failover began.
            Reply::Granted(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let mut new = replica.client();
    wait_for_promotion(&mut new);
    server.assert_alive();
    replica.assert_alive();
    assert_eq!(client.stat("dlock_waiters"), 0);
    assert_eq!(new.owner("door").as_deref(), Some("alice"));
    for n in 0..20 {
        // Grants are kept, expired locks are free.
        let holder = new.find_lock(&format!("lock{n}")).map(|lock| lock.owners());
        assert!(holder.is_none_or(|owners| owners == ["bob"] || owners == ["alice"]));
    }
}

#[test]
fn aborted_failover_resumes_grants() {
    let mut server = Server::with(AOF);
    let replica = server.replica();
    let mut client = server.client();
    let (mut bob, _) = server.waiter_behind(&["door alice 3000"], "door bob 60000 BLOCK 0");
    begin_failover(&mut client, &replica);
    client.wait_for_lease_end("door", "alice");
    bob.assert_waiting();
    client.ok("FAILOVER ABORT");
    bob.granted();
    server.assert_alive();
}

#[test]
fn failed_save_defers_grants() {
    let (server, mut client) = start_with("save 3600 1000000\ndbfilename obstacle");
    let obstacle = server.directory().join("obstacle");
    fs::create_dir(&obstacle).expect("the directory of the server is writable");
    let (mut bob, _) = server.waiter_behind(&["door alice 3000"], "door bob 60000 BLOCK 0");
    client.ask::<String>("BGSAVE");
    wait_for("a save that fails", || {
        client.server_info("persistence", "rdb_last_bgsave_status") == "err"
    });
    for command in [
        "DLOCK.ACQUIRE gate carol 60000",
        "DLOCK.ACQUIRE gate carol 60000 QUEUE inbox 0 REQID r1",
        "DLOCK.GUARD door alice 1",
        "DLOCK.GUARD door alice 1 GET data",
    ] {
        client.assert_error("MISCONF", command);
    }
    client.ask::<redis::Value>("DLOCK.GRANTS inbox 0");
    assert_grant_deferred(&mut client, &bob);
    fs::remove_dir(&obstacle).expect("the directory of the server is writable");
    client.ask::<String>("BGSAVE");
    bob.granted();
}
