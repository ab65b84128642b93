//! Nobody overtakes, also when leases end, waiters leave or keys are renamed. More of it is in `tests/rules`.

use dlock_testkit::{Grant, Server, Waiter, skip_part, start};
use redis::Value;

use crate::fixtures::held_by_alice;

#[test]
fn request_never_overtakes_waiter_at_lease_end() {
    let (server, mut client) = start();
    let (mut bob, _) = server.waiter_behind(&["door alice 2000"], "door bob 60000 BLOCK 0");
    client.pause_writes_after(&[]);
    client.wait_for_lease_end("door", "alice");
    bob.assert_waiting();
    // Before the server grants by itself.
    let replies = client.resume_writes_with(&["DLOCK.ACQUIRE door carol 60000"]);
    assert_eq!(replies, [Value::Nil]);
    bob.granted();
}

#[test]
fn waiter_due_for_grant_reenters_when_it_asks_again() {
    let (server, mut client) = start();
    let (mut bob, _) = server.waiter_behind(&["door alice 2000"], "door bob 60000 BLOCK 0");
    client.pause_writes_after(&[]);
    client.wait_for_lease_end("door", "alice");
    let mut replies = client.resume_writes_with(&["DLOCK.ACQUIRE door bob 60000"]);
    let second = Grant::parse(replies.remove(0)).expect("bob was granted first");
    let first = bob.granted();
    assert_eq!((first.holds, second.holds), (1, 2));
    assert_eq!(first.fence, second.fence);
}

/// A reader holds the lock. A writer waits for it and leaves: now the readers queued after it can be granted.
#[test]
fn departed_waiter_unblocks_those_behind_it() {
    let ways = ["TIMEOUT", "UNBLOCK", "KILL", "CLOSE", "WITHDRAW"];
    for way in ways {
        let server = Server::start();
        if way == "UNBLOCK" && !server.supports_client_unblock() {
            skip_part("the part with CLIENT UNBLOCK: it is disabled for waiters on Redis 7.2");
            continue;
        }
        let mut client = server.client();
        client.acquire("door alice 60000 SHARED");
        let mut writer = Waiter::connect(&server);
        let id = writer.id();
        let timeout = if way == "TIMEOUT" { 1000 } else { 0 };
        writer.acquire(&format!("door writer 60000 BLOCK {timeout} REQID r1"));
        client.wait_for_queue("door", 1);
        let mut readers = [
            server.waiter("door reader1 60000 SHARED BLOCK 0"),
            server.waiter("door reader2 60000 SHARED BLOCK 0"),
        ];
        let mut second_writer = server.waiter("door writer2 60000 BLOCK 0");
        match way {
            "TIMEOUT" => {}
            "UNBLOCK" => _ = client.ask::<i64>(&format!("CLIENT UNBLOCK {id}")),
            "KILL" => _ = client.ask::<i64>(&format!("CLIENT KILL ID {id}")),
            "CLOSE" => writer.close(),
            _ => _ = client.release("door writer REQID r1"),
        }
        for reader in &mut readers {
            reader.granted();
        }
        let owners = client.lock("door").owners();
        assert_eq!(owners, ["alice", "reader1", "reader2"], "{way}");
        assert_eq!(client.queue("door"), ["writer2"], "{way}");
        client.release("door alice");
        client.release("door reader1");
        client.release("door reader2");
        second_writer.granted();
    }
}

#[test]
fn waiting_owner_reenters_lock_renamed_onto_key() {
    let (server, mut client) = held_by_alice();
    let carol = server.waiter("door carol 60000 BLOCK 0");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let fence = client.acquire("gate bob 60000").fence;
    client.ok("RENAME gate door");
    let grant = bob.granted();
    assert_eq!((grant.fence, grant.holds), (fence, 2));
    carol.assert_waiting();
    client.assert_sole_holder("door", "bob", fence, 2);
    assert_eq!(client.queue("door"), ["carol"]);
}
