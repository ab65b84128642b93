//! Snapshots without a fork: while a value is being saved, on another thread, its key does not open for writing. That
//! means "later", and never "gone". The server is a double of Valkey 9.2: see `tests/kit/src/forkless.c`.

use std::time::{Duration, Instant};

use dlock_testkit::{Client, Forkless, Inbox, Server, assert_elapsed_at_most, pause, wait_for};

/// A server, and a client of it.
fn start() -> (Forkless, Server, Client) {
    let double = Forkless::new();
    let server = double.start();
    let client = server.client();
    (double, server, client)
}

#[test]
fn values_saved_on_another_thread_are_loaded_as_they_were() {
    let (_double, mut server, mut client) = start();
    client.acquire("door alice 60000 REQID r1");
    client.acquire("shared bob 30000 SHARED");
    client.acquire("shared carol 90000 SHARED");
    let digests = ["door", "shared"].map(|key| client.digest(key));
    client.ok("SAVE");
    server.restart();
    let mut client = server.client();
    assert_eq!(["door", "shared"].map(|key| client.digest(key)), digests);
    let left = client.lock("shared").holder("carol").lease_ms;
    assert!((60_000..=90_000).contains(&left), "{left} ms");
}

/// The clock of another thread knows the grace period: leases last until its end.
#[test]
fn lease_saved_on_another_thread_lasts_until_end_of_grace() {
    let (_double, mut server, mut client) = start();
    client.acquire("door alice 3000");
    client.ok("CONFIG SET dlock.startup-grace-ms 60000");
    server.add_config("dlock.startup-grace-ms 60000");
    client.ok("SAVE");
    server.restart();
    let mut client = server.client();
    wait_for("the grace period", || client.stat("dlock_grace_left_ms") > 0);
    client.ok("SAVE");
    server.add_config("dlock.startup-grace-ms 0");
    server.restart();
    let mut client = server.client();
    let left = client.lock("door").holder("alice").lease_ms;
    assert!(left > 3_000, "{left} ms");
}

#[test]
fn request_for_lock_that_is_being_saved_is_to_be_sent_again() {
    let (double, _server, mut client) = start();
    let fence = client.acquire("door alice 60000").fence;
    double.begin("door");
    for command in [
        "DLOCK.ACQUIRE door bob 1000",
        "DLOCK.RELEASE door alice",
        "DLOCK.EXTEND door alice 60000",
    ] {
        let error = client.error(command);
        assert!(error.starts_with("TRYAGAIN "), "{error}");
    }
    client.assert_sole_holder("door", "alice", fence, 1);
    client.acquire("other bob 60000");
    double.end();
    client.release("door alice");
    client.acquire("door bob 1000");
}

#[test]
fn waiter_of_lock_that_is_being_saved_is_granted_it_afterwards_or_times_out() {
    let (double, server, mut client) = start();
    let mut bob = server
        .waiter_behind(&["door alice 500"], "door bob 60000 BLOCK 0")
        .0;
    let mut carol = server.waiter("door carol 60000 BLOCK 1000");
    double.begin("door");
    client.wait_for_lease_end("door", "alice");
    carol.assert_null();
    bob.assert_waiting();
    double.end();
    bob.granted();
    assert_eq!(client.stat("dlock_internal_errors"), 0);
}

#[test]
fn grant_of_lock_that_is_being_saved_is_rolled_back_afterwards() {
    let (double, server, mut client) = start();
    client.acquire("door alice 60000");
    let mut inbox = Inbox::make(&server, "inbox");
    inbox.call("TTL 1000");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    double.begin("door");
    client.wait_for_inboxes(0);
    pause(200);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
    assert_eq!(client.owner("door").as_deref(), Some("bob"));
    let start = Instant::now();
    double.end();
    wait_for("the rollback", || !client.exists("door"));
    assert_elapsed_at_most(Duration::from_secs(5), start);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 1);
}

#[test]
fn abandoned_lock_that_is_being_saved_is_removed_afterwards() {
    let (double, _server, mut client) = start();
    client.acquire("door alice 200");
    double.begin("door");
    client.wait_for_lease_end("door", "alice");
    pause(1_000);
    assert_eq!(client.ask::<i64>("DBSIZE"), 1);
    double.end();
    wait_for("no keys", || client.ask::<i64>("DBSIZE") == 0);
    assert_eq!(client.stat("dlock_locks"), 0);
}

#[test]
fn restored_lock_that_is_being_saved_is_removed_when_its_lease_has_ended() {
    let (double, _server, mut client) = start();
    client.acquire("door alice 500");
    let payload: Vec<u8> = client.ask("DUMP door");
    client.ok("RENAME door gate");
    double.begin("door");
    client.ask_args::<String>(&[b"RESTORE", b"door", b"0", &payload]);
    pause(200);
    double.end();
    wait_for("no lock that was restored", || !client.exists("door"));
}
