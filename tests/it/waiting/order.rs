//! FIFO order of grants, within the limits, without overtaking.

use dlock_testkit::{Client, Grant, Server, Waiter, skip_part, start};
use redis::Value;

use crate::fixtures::held_by_alice;

/// alice holds `door`, and these requests wait for it in this order.
fn held_with_waiters(waiters: &[&str]) -> (Server, Client, Vec<Waiter>) {
    let (server, client) = held_by_alice();
    let waiters = waiters
        .iter()
        .map(|request| server.waiter(&format!("door {request} BLOCK 0")))
        .collect();
    (server, client, waiters)
}

fn assert_all_waiting(waiters: &[Waiter]) {
    waiters.iter().for_each(Waiter::assert_waiting);
}

#[test]
fn waiters_are_granted_in_fifo_order() {
    let (server, mut client) = start();
    let mut last = client.acquire("door alice 60000").fence;
    let mut waiters: Vec<Waiter> = (0..30)
        .map(|n| server.waiter(&format!("door owner{n} 60000 BLOCK 0")))
        .collect();
    let mut holder = "alice".to_owned();
    for n in 0..waiters.len() {
        assert_eq!(client.release(&format!("door {holder}")), 0);
        let fence = waiters[n].granted().fence;
        assert!(fence > last);
        assert_all_waiting(&waiters[n + 1..]);
        last = fence;
        holder = format!("owner{n}");
    }
}

#[test]
fn release_grants_to_all_readers_at_head_of_queue() {
    let (_server, mut client, mut waiters) = held_with_waiters(&[
        "reader1 60000 SHARED",
        "reader2 60000 SHARED",
        "writer 60000",
        "reader3 60000 SHARED",
    ]);
    client.release("door alice");
    let first = waiters[0].granted().fence;
    assert!(waiters[1].granted().fence > first);
    assert_eq!(client.lock("door").owners(), ["reader1", "reader2"]);
    assert_eq!(client.queue("door"), ["writer", "reader3"]);
    assert_all_waiting(&waiters[2..]);
    client.release("door reader1");
    assert_all_waiting(&waiters[2..]);
    client.release("door reader2");
    waiters[2].granted();
    assert_all_waiting(&waiters[3..]);
    client.release("door writer");
    waiters[3].granted();
}

#[test]
fn release_grants_to_as_many_waiters_as_semaphore_allows() {
    let (_server, mut client, mut waiters) = held_with_waiters(&[
        "one 60000 LIMIT 2",
        "two 60000 LIMIT 2",
        "three 60000 LIMIT 2",
        "four 60000 LIMIT 2",
    ]);
    client.release("door alice");
    waiters[0].granted();
    waiters[1].granted();
    assert_eq!(client.queue("door"), ["three", "four"]);
    client.release("door two");
    waiters[2].granted();
    assert_all_waiting(&waiters[3..]);
    client.release("door one");
    waiters[3].granted();
}

#[test]
fn waiter_is_granted_within_smallest_limit() {
    let (_server, mut client, mut waiters) =
        held_with_waiters(&["one 60000 LIMIT 2", "two 60000 LIMIT 3", "three 60000 LIMIT 3"]);
    client.release("door alice");
    waiters[0].granted();
    waiters[1].granted();
    assert_all_waiting(&waiters[2..]);
    assert_eq!(client.lock("door").limit, 2);
    // The stricter limit is lifted with its holder.
    client.release("door one");
    waiters[2].granted();
    assert_eq!(client.lock("door").limit, 3);
}

#[test]
fn request_never_overtakes_waiter_even_if_it_fits() {
    let (server, mut client) = start();
    client.acquire("door alice 60000 SHARED");
    let mut writer = server.waiter("door writer 60000 BLOCK 0");
    assert_eq!(client.try_acquire("door reader 60000 SHARED"), None);
    assert_eq!(client.try_acquire("door other 60000 LIMIT 9"), None);
    let mut reader = server.waiter("door reader 60000 SHARED BLOCK 0");
    assert_eq!(client.queue("door"), ["writer", "reader"]);
    client.release("door alice");
    writer.granted();
    reader.assert_waiting();
    client.release("door writer");
    reader.granted();
}

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

#[test]
fn holder_reenters_ahead_of_waiters() {
    let (_server, mut client, mut waiters) = held_with_waiters(&["bob 60000"]);
    assert_eq!(client.acquire("door alice 60000").holds, 2);
    assert_eq!(client.acquire("door alice 60000 BLOCK 0 REQID r1").holds, 3);
    assert_all_waiting(&waiters);
    client.release("door alice ALL");
    waiters[0].granted();
}

#[test]
fn partial_release_hands_nothing_over() {
    let (_server, mut client, mut waiters) = held_with_waiters(&["bob 60000"]);
    client.acquire("door alice 60000");
    client.acquire("door alice 60000 REQID r1");
    for left in [2, 1] {
        assert_eq!(client.release("door alice"), left);
        assert_all_waiting(&waiters);
    }
    client.release("door alice");
    waiters[0].granted();
}

#[test]
fn nonblocking_request_behind_waiters_gets_null() {
    let (_server, mut client, _waiters) = held_with_waiters(&["bob 60000"]);
    assert_eq!(client.try_acquire("door carol 60000"), None);
    assert_eq!(client.try_acquire("door bob 60000"), None);
    assert_eq!(client.queue("door"), ["bob"]);
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
fn waiter_leaving_middle_of_queue_keeps_order() {
    let (_server, mut client, mut waiters) =
        held_with_waiters(&["bob 60000", "carol 60000 REQID r1", "dave 60000"]);
    client.release("door carol REQID r1");
    waiters[1].assert_null();
    assert_eq!(client.queue("door"), ["bob", "dave"]);
    client.release("door alice");
    waiters[0].granted();
    waiters[2].assert_waiting();
    client.release("door bob");
    waiters[2].granted();
}

#[test]
fn queues_of_two_locks_are_independent() {
    let (server, mut client) = held_by_alice();
    client.acquire("gate alice 60000");
    let mut at_door = server.waiter("door bob 60000 BLOCK 0");
    let mut at_gate = server.waiter("gate carol 60000 BLOCK 0");
    client.release("gate alice");
    at_gate.granted();
    at_door.assert_waiting();
    client.release("door alice");
    at_door.granted();
}
