//! The exact commands in the replication stream: effects, never requests that depend on time.

use dlock_testkit::{Client, ReplicationStream, Server, start, wait_for};

use crate::fixtures::{APPLY_DOOR, NOTHING};

/// A primary that has granted its first fence, and what it replicates from now on.
fn primary() -> (Server, Client, ReplicationStream) {
    let (server, mut client) = start();
    client.acquire("first alice 10000");
    client.release("first alice");
    let stream = ReplicationStream::attach(&server);
    (server, client, stream)
}

#[test]
fn granted_hold_is_replicated_as_one_change() {
    let (_server, mut client, mut stream) = primary();
    for request in [
        "door alice 10000 SHARED",
        "door alice 10000 SHARED REQID r1",
        "door alice 1 SHARED",
        "door bob 10000 SHARED",
    ] {
        client.acquire(request);
        assert_eq!(stream.take_all(), [APPLY_DOOR], "{request}");
    }
}

#[test]
fn release_is_replicated_as_change() {
    let (_server, mut client, mut stream) = primary();
    let fence = client.acquire("door alice 10000").fence;
    for request in [
        "alice 10000",
        "alice 10000 REQID r1",
        "alice 10000 REQID r2",
        "alice 10000",
    ] {
        client.acquire(&format!("door {request}"));
    }
    stream.take();
    for request in [
        "alice",
        "alice REQID r1",
        &format!("alice FENCE {fence}"),
        "alice all",
    ] {
        client.release(&format!("door {request}"));
        assert_eq!(stream.take(), [APPLY_DOOR], "{request}");
    }
}

#[test]
fn release_that_expires_holder_is_replicated_as_change() {
    let (_server, mut client, mut stream) = primary();
    client.pause_writes_after(&[
        "DLOCK.ACQUIRE door alice 20 SHARED",
        "DLOCK.ACQUIRE door bob 60000 SHARED",
        "DLOCK.ACQUIRE door bob 60000 SHARED",
    ]);
    client.wait_for_lease_end("door", "alice");
    client.resume_writes_with(&["DLOCK.RELEASE door bob"]);
    assert_eq!(stream.take().split_off(3), [APPLY_DOOR]);
    client.release("door bob");
    assert_eq!(stream.take(), [APPLY_DOOR]);
}

#[test]
fn grant_after_expired_lease_is_replicated_as_one_change() {
    let (_server, mut client, mut stream) = primary();
    client.pause_writes_after(&["DLOCK.ACQUIRE door alice 20"]);
    client.wait_for_lease_end("door", "alice");
    client.resume_writes_with(&["DLOCK.ACQUIRE door bob 10000"]);
    assert_eq!(stream.take(), [APPLY_DOOR, APPLY_DOOR]);
}

#[test]
fn extend_is_replicated_only_when_lease_grows() {
    let (_server, mut client, mut stream) = primary();
    client.acquire("door alice 10000");
    stream.take();
    client.extend("door alice 60000");
    assert_eq!(stream.take_all(), [APPLY_DOOR]);
    client.extend("door alice 1");
    assert_eq!(stream.take_all(), NOTHING);
}

#[test]
fn request_without_effect_is_not_replicated() {
    let (_server, mut client, mut stream) = primary();
    client.acquire("door alice 10000 REQID r1");
    client.ok("SET text value");
    stream.take();
    let commands = [
        "DLOCK.ACQUIRE door alice 60000 REQID r1",
        "DLOCK.ACQUIRE door bob 10000",
        "DLOCK.ACQUIRE door bob 0",
        "DLOCK.ACQUIRE text bob 10000",
        "DLOCK.RELEASE door alice REQID unknown",
        "DLOCK.RELEASE door bob REQID r1",
        "DLOCK.RELEASE door bob",
        "DLOCK.RELEASE door alice FENCE 1",
        "DLOCK.RELEASE free alice",
        "DLOCK.EXTEND door bob 60000",
        "DLOCK.EXTEND door alice 60000 FENCE 1",
        "DLOCK.EXTEND free alice 60000",
        "DLOCK.OWNER door",
        "DLOCK.OWNER free",
        "DLOCK.INFO door",
        "DLOCK.INFO free",
    ];
    for command in commands {
        // Errors are expected.
        let _ = client.call(command);
        assert_eq!(stream.take_all(), NOTHING, "{command}");
    }
}

#[test]
fn read_of_expired_lock_is_not_replicated() {
    let (_server, mut client, mut stream) = primary();
    client.pause_writes_after(&["DLOCK.ACQUIRE door alice 20"]);
    client.wait_for_lease_end("door", "alice");
    let replies = client.resume_writes_with(&[
        "DLOCK.OWNER door",
        "DLOCK.INFO door",
        "PUBLISH after-the-reads mark",
        "EXISTS door",
    ]);
    assert_eq!(replies[3], redis::Value::Int(1), "not swept yet");
    // Nothing between the grant and the mark, then the sweep.
    wait_for("the sweep", || !client.exists("door"));
    let expected = [APPLY_DOOR, "PUBLISH after-the-reads mark", APPLY_DOOR];
    assert_eq!(stream.take_with_publish(), expected);
}

#[test]
fn sweep_is_replicated_as_removal() {
    let (_server, mut client, mut stream) = primary();
    client.acquire("door alice 50");
    wait_for("the sweep", || !client.exists("door"));
    assert_eq!(stream.take_all(), [APPLY_DOOR, APPLY_DOOR]);
}

#[test]
fn sweep_of_one_shared_holder_is_replicated_as_one_change() {
    let (_server, mut client, mut stream) = primary();
    client.batch(&[
        "DLOCK.ACQUIRE door alice 50 SHARED",
        "DLOCK.ACQUIRE door bob 60000 SHARED",
    ]);
    wait_for("the sweep", || client.stat("dlock_expired") == 1);
    assert_eq!(stream.take_all(), [APPLY_DOOR; 3], "two grants and the sweep");
    assert_eq!(client.lock("door").owners(), ["bob"]);
}

#[test]
fn first_grant_replicates_fence_counter() {
    let server = Server::start();
    let replica = server.replica();
    let mut stream = ReplicationStream::attach(&server);
    let mut client = server.client();
    let fence = client.acquire("door alice 10000").fence;
    client.sync();
    assert_eq!(stream.take(), [APPLY_DOOR]);
    let known = replica.client().stat("dlock_fence_known");
    assert_eq!(u64::try_from(known), Ok(fence));
}
