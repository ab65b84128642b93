//! Times in which a server may not grant: nobody is let in, nothing crashes, and afterwards it goes on.

use std::fs;
use std::time::{Duration, Instant};

use dlock_testkit::{Client, Reply, Server, Waiter, pause, start, start_with, wait_for};

const LOGGED: &str = "appendonly yes\nappendfsync always";

/// A lock whose lease has ended, though nobody is let in, and a waiter for it.
#[track_caller]
fn lease_ends_unserved(client: &mut Client, waiter: &Waiter) {
    client.wait_for_lease_end("door", "alice");
    // The server tries again and again: it must not succeed.
    pause(250);
    waiter.assert_waiting();
    assert_eq!(client.owner("door"), None);
    assert_eq!(client.waiting("door"), 1);
}

/// Has the replica miss something for a second: so long a failover makes the primary stand still.
fn leave_behind(client: &mut Client, replica: &Server) {
    client.sync();
    replica.client().send("DEBUG SLEEP 1");
    pause(50);
    client.ok("SET text value");
}

#[test]
fn paused_writes_defer_grants_with_aof_and_replica() {
    let mut server = Server::with(LOGGED);
    let replica = server.replica();
    let mut client = server.client();
    client.acquire("door alice 300");
    client.acquire("gate alice 60000");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let mut short = server.waiter("gate bob 60000 BLOCK 600");
    client.pause_writes_after(&[]);
    lease_ends_unserved(&mut client, &bob);
    short.assert_null();
    server.assert_alive();
    client.ok("CLIENT UNPAUSE");
    let fence = bob.granted().fence;
    client.acquire("gate alice 60000");
    client.sync();
    assert_eq!(
        replica.client().lock("door").standing(),
        [("bob".into(), fence, 1)]
    );
}

#[test]
fn paused_clients_defer_grants_with_aof_and_replica() {
    let mut server = Server::with(LOGGED);
    let replica = server.replica();
    let mut client = server.client();
    client.acquire("door alice 200");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let start = Instant::now();
    client.batch(&["CLIENT PAUSE 900 ALL"]);
    let fence = bob.granted().fence;
    assert!(start.elapsed() >= Duration::from_millis(900));
    server.assert_alive();
    client.acquire("gate alice 60000");
    client.sync();
    assert_eq!(
        replica.client().lock("door").standing(),
        [("bob".into(), fence, 1)]
    );
}

#[test]
fn leases_expired_during_pause_are_handed_over_after_it() {
    let mut server = Server::with(LOGGED);
    let _replica = server.replica();
    let mut client = server.client();
    let mut waiters: Vec<Waiter> = Vec::new();
    for n in 0..40 {
        client.acquire(&format!("lock{n} alice {}", 3_000 + n));
        waiters.push(server.waiter(&format!("lock{n} bob 60000 BLOCK 0")));
    }
    client.pause_writes_after(&[]);
    for n in 0..40 {
        client.wait_for_lease_end(&format!("lock{n}"), "alice");
    }
    waiters.iter().for_each(Waiter::assert_waiting);
    client.ok("CLIENT UNPAUSE");
    for waiter in &mut waiters {
        waiter.granted();
    }
    server.assert_alive();
}

#[test]
fn waiter_leaving_during_pause_defers_grants_until_its_end() {
    let (server, mut client) = start();
    client.acquire("door alice 60000 SHARED");
    let writer = server.waiter("door writer 60000 BLOCK 0");
    let mut reader = server.waiter("door reader 60000 SHARED BLOCK 0");
    client.pause_writes_after(&[]);
    writer.close();
    client.wait_for_queue("door", 1);
    pause(200);
    reader.assert_waiting();
    client.ok("CLIENT UNPAUSE");
    reader.granted();
}

#[test]
fn planned_failover_unblocks_waiters_while_leases_expire() {
    let mut server = Server::with(LOGGED);
    let mut replica = server.replica_with(LOGGED);
    let mut client = server.client();
    let mut waiters: Vec<Waiter> = Vec::new();
    for n in 0..20 {
        client.acquire(&format!("lock{n} alice {}", 300 + 20 * n));
        waiters.push(server.waiter(&format!("lock{n} bob 60000 BLOCK 0")));
    }
    client.acquire("door alice 60000");
    waiters.push(server.waiter("door bob 60000 BLOCK 0"));
    leave_behind(&mut client, &replica);
    client.ok(&format!("FAILOVER TO 127.0.0.1 {}", replica.port()));
    for waiter in &mut waiters {
        match waiter.reply() {
            Reply::Error(error) => assert!(error.starts_with("UNBLOCKED "), "{error}"),
            // Before the failover began.
            Reply::Granted(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let mut new = replica.client();
    wait_for("the new primary", || {
        new.server_info("replication", "role") == "master"
    });
    server.assert_alive();
    replica.assert_alive();
    assert_eq!(client.stat("dlock_waiters"), 0);
    assert_eq!(new.owner("door").as_deref(), Some("alice"));
    for n in 0..20 {
        // What was granted stays granted, what ended is free.
        let holder = new.find_lock(&format!("lock{n}")).map(|lock| lock.owners());
        assert!(holder.is_none_or(|owners| owners == ["bob"] || owners == ["alice"]));
    }
}

#[test]
fn aborted_failover_resumes_grants() {
    let mut server = Server::with(LOGGED);
    let replica = server.replica();
    let mut client = server.client();
    leave_behind(&mut client, &replica);
    client.acquire("door alice 400");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    client.ok(&format!("FAILOVER TO 127.0.0.1 {}", replica.port()));
    client.wait_for_lease_end("door", "alice");
    bob.assert_waiting();
    client.ok("FAILOVER ABORT");
    bob.granted();
    server.assert_alive();
}

#[test]
fn missing_replicas_defer_grants() {
    let (server, mut client) = start();
    client.acquire("door alice 300");
    client.acquire("gate alice 60000");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let mut short = server.waiter("gate bob 60000 BLOCK 600");
    client.config_set("min-replicas-to-write", "1");
    lease_ends_unserved(&mut client, &bob);
    short.assert_null();
    assert_eq!(client.error_code("DLOCK.RELEASE gate alice"), "NOREPLICAS");
    let _replica = server.replica();
    bob.granted();
}

#[test]
fn failed_save_defers_grants() {
    let (server, mut client) = start_with("save 3600 1000000\ndbfilename in-the-way");
    client.acquire("door alice 300");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let obstacle = server.folder().join("in-the-way");
    fs::create_dir(&obstacle).expect("the folder of the server is writable");
    client.ask::<String>("BGSAVE");
    wait_for("a save that fails", || {
        client.server_info("persistence", "rdb_last_bgsave_status") == "err"
    });
    assert_eq!(client.error_code("DLOCK.ACQUIRE gate carol 60000"), "MISCONF");
    lease_ends_unserved(&mut client, &bob);
    fs::remove_dir(&obstacle).expect("the folder of the server is writable");
    client.ask::<String>("BGSAVE");
    bob.granted();
}

#[test]
fn blocking_acquire_in_grace_is_granted_at_its_end() {
    let (server, mut client) = start_with("dlock.startup-grace-ms 800");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let mut carol = server.waiter("door carol 60000 SHARED BLOCK 0");
    let mut short = server.waiter("door dave 60000 BLOCK 20");
    short.assert_null();
    assert_eq!(client.error_code("DLOCK.ACQUIRE door eve 60000"), "GRACE");
    assert!(!client.exists("door"), "waiters make no key");
    assert_eq!(client.queue("door"), ["bob", "carol"]);
    bob.assert_waiting();
    assert_eq!(bob.granted().lease_ms, 60_000);
    assert_eq!(client.stat("dlock_grace_left_ms"), 0);
    carol.assert_waiting();
    client.release("door bob");
    carol.granted();
}

#[test]
fn blocking_reentry_in_grace_waits_but_repeated_reqid_is_answered() {
    let mut server = Server::with(LOGGED);
    let fence = server.client().acquire("door alice 60000 REQID r1").fence;
    server.add_config("dlock.startup-grace-ms 1000");
    server.crash_and_restart();
    let mut client = server.client();
    let mut alice = server.waiter("door alice 60000 BLOCK 0 REQID r2");
    let known = client.acquire("door alice 60000 BLOCK 0 REQID r1");
    assert_eq!((known.fence, known.holds), (fence, 1));
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    // A release works in a grace; it lets nobody in.
    assert_eq!(client.release(&format!("door alice FENCE {fence}")), 0);
    assert!(client.stat("dlock_grace_left_ms") > 0, "the machine is too slow");
    bob.assert_waiting();
    assert!(alice.granted().fence > fence);
    client.release("door alice");
    bob.granted();
}

#[test]
fn holder_waiting_in_grace_reenters_at_its_end() {
    let mut server = Server::with(LOGGED);
    let fence = server.client().acquire("door alice 60000").fence;
    server.add_config("dlock.startup-grace-ms 700");
    server.crash_and_restart();
    let mut alice = server.waiter("door alice 60000 BLOCK 0");
    let grant = alice.granted();
    assert_eq!((grant.fence, grant.holds), (fence, 2));
}

#[test]
fn stricter_reentry_in_grace_is_refused_at_once() {
    let mut server = Server::with(LOGGED);
    server.client().acquire("door alice 60000 SHARED");
    server.add_config("dlock.startup-grace-ms 600000");
    server.crash_and_restart();
    let mut client = server.client();
    assert_eq!(client.error_code("DLOCK.ACQUIRE door alice 60000 BLOCK 0"), "ERR");
    assert_eq!(client.error_code("DLOCK.ACQUIRE door alice 60000"), "ERR");
}

#[test]
fn out_of_memory_does_not_stop_grants_to_waiters() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    client.acquire("gate alice 400");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let mut carol = server.waiter("door carol 60000 BLOCK 100");
    let mut dave = server.waiter("gate dave 60000 BLOCK 0");
    client.config_set("maxmemory", "1");
    assert_eq!(client.error_code("DLOCK.ACQUIRE door eve 60000 BLOCK 0"), "OOM");
    carol.assert_null();
    client.release("door alice");
    bob.granted();
    dave.granted();
}

#[test]
fn evicting_policy_refuses_waiters_when_their_turn_comes() {
    let (server, mut client) = start_with("maxmemory 1gb");
    client.acquire("door alice 60000");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    client.config_set("maxmemory-policy", "allkeys-lru");
    assert_eq!(
        client.error_code("DLOCK.ACQUIRE door carol 60000 BLOCK 0"),
        "EVICTABLE"
    );
    client.release("door alice");
    let error = bob.error();
    assert!(error.starts_with("EVICTABLE "), "{error}");
    assert!(!client.exists("door"));
}
