//! Fences rise over restarts with and without data, and after a promotion ahead of the clock.

use dlock_testkit::{Client, Server, start_with};

use crate::fixtures::{AOF, rewrite_aof};

/// Acquires `door`. Its fence must be larger than the last one.
fn next_fence(client: &mut Client, last: u64) -> u64 {
    let fence = client.acquire("door alice 60000").fence;
    assert!(fence > last, "{fence} after {last}");
    fence
}

#[test]
fn fences_rise_over_restarts_with_and_without_data() {
    for lines in [
        "",
        "save 3600 1000000",
        "appendonly yes\nappendfsync always",
        "appendonly yes\naof-use-rdb-preamble no",
    ] {
        let mut server = Server::with(lines);
        let mut last = 0;
        for _ in 0..3 {
            let mut client = server.client();
            // With data the lock is still held.
            if client.exists("door") {
                client.release("door alice ALL");
            }
            last = next_fence(&mut client, last);
            client.release("door alice");
            last = next_fence(&mut client, last);
            server.restart();
        }
    }
}

#[test]
fn start_advances_fences_at_end_of_grace_before_first_grant() {
    const GRACE_MS: u64 = 1_500;
    let (mut server, mut client) = start_with(AOF);
    let last = next_fence(&mut client, 0);
    client.release("door alice");
    server.add_config(&format!("dlock.startup-grace-ms {GRACE_MS}"));
    server.crash_and_restart();
    let mut client = server.client();
    let mut waiter = server.waiter("door bob 60000 BLOCK 0");
    let known = client.stat("dlock_fence_known");
    assert!(client.stat("dlock_grace_left_ms") > 0, "or the test was too slow");
    assert_eq!(u64::try_from(known), Ok(last), "not during the grace period");
    let risen_ms = (waiter.granted().fence - last) / 2048;
    assert!(risen_ms >= GRACE_MS, "{risen_ms}");
}

#[test]
fn fence_ahead_of_clock_survives_aof_rewrite_of_free_lock() {
    let primary = Server::start();
    primary.client().acquire("door alice 60000");
    let (mut server, mut client) = start_with("appendonly yes\nappendfsync always");
    client.ok(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    server.wait_until_linked();
    // A promotion raises the counter ahead of the clock.
    client.ok("REPLICAOF NO ONE");
    client.release("door alice");
    let ahead = next_fence(&mut client, 0);
    client.release("door alice");
    for _ in 0..2 {
        // The resync has started one already.
        client.wait_for_aof_rewrite();
        rewrite_aof(&mut client);
        server.crash_and_restart();
        client = server.client();
    }
    let known = u64::try_from(client.stat("dlock_fence_known")).expect("a fence");
    assert!(known >= ahead, "{known} {ahead}");
    next_fence(&mut client, ahead);
}
