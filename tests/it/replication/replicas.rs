//! A replica has the same locks as its primary, and grants or expires nothing itself.

use dlock_testkit::{Client, Server, pause, start, wait_for};

use crate::fixtures::start_with_replica;

/// A primary with all kinds of holders.
fn primary_with_locks() -> (Server, Client) {
    let (server, mut client) = start();
    make_locks(&mut client);
    (server, client)
}

fn make_locks(client: &mut Client) {
    for request in [
        "mutex alice 60000",
        "mutex alice 70000",
        "mutex alice 60000 REQID r1",
        "semaphore alice 60000 LIMIT 3",
        "semaphore bob 80000 LIMIT 4 REQID r1",
        "shared alice 60000 SHARED",
        "shared bob 600000 SHARED",
        "shared carol 60000 SHARED",
    ] {
        client.acquire(request);
    }
    client.extend("shared carol 90000");
    client.release("semaphore bob");
    client.acquire("semaphore carol 60000 LIMIT 5 REQID r2");
    client.release("mutex alice");
}

const LOCKS: [&str; 3] = ["mutex", "semaphore", "shared"];

/// Same owners, holds, fences and limits, and leases that expire no earlier.
#[track_caller]
fn assert_same_locks(replica: &mut Client, primary: &mut Client) {
    for key in LOCKS {
        // The replica first: until the primary is asked, its leases only become shorter.
        let actual = replica.lock(key);
        let expected = primary.lock(key);
        assert_eq!(actual.standing(), expected.standing(), "{key}");
        assert_eq!(actual.limit, expected.limit, "{key}");
        for (theirs, ours) in actual.holders.iter().zip(&expected.holders) {
            let is_expected = theirs.lease_ms >= ours.lease_ms;
            assert!(is_expected, "{key}: {theirs:?} ends before {ours:?}");
            let is_expected = theirs.lease_ms <= ours.lease_ms + 10_000;
            assert!(is_expected, "{key}: {theirs:?} ends long after {ours:?}");
        }
        assert_eq!(replica.ask::<i64>(&format!("PTTL {key}")), -1);
    }
}

#[test]
fn full_resync_carries_all_locks() {
    let (server, mut client) = primary_with_locks();
    let replica = server.replica();
    assert_same_locks(&mut replica.client(), &mut client);
}

#[test]
fn diskless_swapdb_resync_carries_all_locks() {
    let (server, mut client) = primary_with_locks();
    let replica = server.replica_with("repl-diskless-load swapdb");
    assert_same_locks(&mut replica.client(), &mut client);
    client.acquire("door alice 10000");
    client.sync();
    assert_eq!(replica.client().owner("door").as_deref(), Some("alice"));
}

#[test]
fn partial_resync_has_no_gap() {
    let (server, mut client) = primary_with_locks();
    let replica = server.replica();
    client.sync();
    // `slave` is the word that every server knows.
    client.ask::<i64>("CLIENT KILL TYPE slave");
    client.release("shared alice");
    client.acquire("mutex alice 60000");
    wait_for("a partial resync", || {
        client.server_info("stats", "sync_partial_ok") == "1"
    });
    client.acquire("semaphore carol 60000 LIMIT 5");
    client.sync();
    assert_same_locks(&mut replica.client(), &mut client);
    assert_eq!(client.server_info("stats", "sync_full"), "1");
}

#[test]
fn second_full_resync_replaces_dataset() {
    let (server, mut client) = primary_with_locks();
    let replica = server.replica();
    let mut other = replica.client();
    other.ok("REPLICAOF NO ONE");
    other.acquire("leftover alice 60000");
    other.release("mutex alice ALL");
    other.ok(&format!("REPLICAOF 127.0.0.1 {}", server.port()));
    replica.wait_until_linked();
    assert_eq!(other.owner("leftover"), None);
    assert_same_locks(&mut other, &mut client);
}

#[test]
fn replica_hides_expired_lease_but_keeps_lock() {
    let (_server, _replica, mut client, mut on_replica) = start_with_replica();
    client.pause_writes_after(&[
        "DLOCK.ACQUIRE door alice 50",
        "DLOCK.ACQUIRE both alice 50 SHARED",
        "DLOCK.ACQUIRE both bob 60000 SHARED",
    ]);
    wait_for("the locks on the replica", || {
        on_replica.exists("door") && on_replica.exists("both")
    });
    on_replica.wait_for_lease_end("door", "alice");
    on_replica.wait_for_lease_end("both", "alice");
    assert_eq!(on_replica.find_lock("door"), None);
    assert_eq!(on_replica.lock("both").owners(), ["bob"]);
    // Several ticks: the replica expires nothing itself.
    pause(400);
    assert!(on_replica.exists("door"));
    client.resume_writes_with(&[]);
    wait_for("the sweep of the primary", || !on_replica.exists("door"));
}

#[test]
fn sub_replica_has_same_locks() {
    let server = Server::start();
    let first = server.replica();
    let second = first.replica();
    let (mut client, mut on_replica) = (server.client(), second.client());
    make_locks(&mut client);
    client.acquire("last alice 60000");
    wait_for("the last change", || on_replica.owner("last").is_some());
    assert_same_locks(&mut on_replica, &mut client);
}

#[test]
fn first_grant_replicates_fence_counter() {
    let (_server, _replica, mut client, mut on_replica) = start_with_replica();
    let fence = client.acquire("door alice 10000").fence;
    client.sync();
    let known = on_replica.stat("dlock_fence_known");
    assert_eq!(u64::try_from(known), Ok(fence));
}
