//! Inboxes are memory of one server: they end with it, or with its role. Grants are durable, read or not.

use dlock_testkit::{Client, Inbox, pause};

use super::{held_with_inbox, shown};
use crate::fixtures::wait_for_promotion;

/// Bob has an unread grant of `door` in `inbox`. Returns its fence.
#[track_caller]
fn grant_to_bob(client: &mut Client) -> u64 {
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    client.lock("door").holder("bob").fence
}

/// The role changes back before the server runs anything else.
#[test]
fn brief_demotion_ends_inboxes_and_rolls_back_or_keeps_grant() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    inbox.block(&mut client);
    client.batch(&[
        "DLOCK.RELEASE door alice",
        "REPLICAOF 127.0.0.1 1",
        "REPLICAOF NO ONE",
    ]);
    let told = match inbox.try_receive() {
        Some(Ok(delivery)) => shown(&delivery.answers),
        Some(Err(error)) => {
            assert!(error.starts_with("UNBLOCKED "), "{error}");
            Vec::new()
        }
        None => Vec::new(),
    };
    inbox.reconnect(&server);
    assert!(inbox.error("").starts_with("NOINBOX "));
    client.wait_for_queue("door", 0);
    if told.is_empty() {
        // Nobody knows of it but by repeating the request.
        let mut next = Inbox::make(&server, "next");
        let known = client.try_acquire("door bob 60000 REQID r1");
        assert!(known.is_some(), "bob holds it, or nobody");
        client.release("door bob ALL");
        next.assert_empty();
    } else {
        assert_eq!(told, ["granted r1 door bob"]);
        assert_eq!(client.lock("door").owners(), ["bob"]);
    }
}

/// What a server would have given back is valid by a reply of another one, when it is the primary again.
#[test]
fn unread_grant_that_other_primary_told_survives_failback() {
    let (server, mut client, _inbox) = held_with_inbox();
    let replica = server.replica();
    let mut new = replica.client();
    let fence = grant_to_bob(&mut client);
    client.sync();
    client.ok(&format!("FAILOVER TO 127.0.0.1 {}", replica.port()));
    wait_for_promotion(&mut new);
    let known = new.acquire("door bob 60000 REQID r1");
    assert_eq!((known.fence, known.holds), (fence, 1));
    server.wait_until_linked();
    new.extend("door bob 600000");
    new.sync();
    new.ok(&format!("FAILOVER TO 127.0.0.1 {}", server.port()));
    wait_for_promotion(&mut client);
    // A later timeout shows that a rollback would have happened by now.
    server.send_acquire("door carol 60000 BLOCK 300").assert_null();
    client.assert_sole_holder("door", "bob", fence, 1);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn aborted_failover_keeps_inboxes() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let replica = server.replica();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    inbox.call("TTL 1000");
    client.sync();
    replica.stop();
    client.ok("SET text value");
    client.ok(&format!("FAILOVER TO 127.0.0.1 {}", replica.port()));
    pause(1_500);
    // Clients were paused: no inbox has ended.
    client.ok("FAILOVER ABORT");
    inbox.call("TTL 60000");
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
    replica.resume();
}
