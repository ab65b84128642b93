//! Inboxes are memory of one server: they end with it, or with its role. Grants are durable, read or not.

use dlock_testkit::{Client, Inbox, ReplicationStream, Server, pause, start, wait_for};
use redis::Value;

use super::{enqueue_many, held_with_inbox, held_with_inbox_and, shown};
use crate::fixtures::{AOF, APPLY_DOOR, NOTHING, rewrite_aof, wait_for_promotion};

/// Bob has an unread grant of `door` in `inbox`. Returns its fence.
#[track_caller]
fn grant_to_bob(client: &mut Client) -> u64 {
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    client.lock("door").holder("bob").fence
}

#[test]
fn replica_has_holds_of_unread_grants_and_no_waiters() {
    let (server, mut client, _inbox) = held_with_inbox();
    let replica = server.replica();
    let fence = grant_to_bob(&mut client);
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    client.sync();
    let mut on_replica = replica.client();
    on_replica.assert_sole_holder("door", "bob", fence, 1);
    for gauge in [
        "dlock_waiters",
        "dlock_waiters_queued",
        "dlock_inboxes",
        "dlock_inbox_answers",
    ] {
        assert_eq!(on_replica.stat(gauge), 0, "{gauge}");
    }
}

#[test]
fn waiting_and_reading_are_not_replicated() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut stream = ReplicationStream::attach(&server);
    client.enqueue("door bob 60000 QUEUE inbox 20 REQID r1");
    inbox.take(1);
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door bob REQID r1");
    inbox.take(1);
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    inbox.call("TTL 0");
    client.wait_for_queue("door", 0);
    assert_eq!(stream.take_all(), NOTHING);
}

#[test]
fn handover_to_queued_requests_is_replicated_as_one_change() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut stream = ReplicationStream::attach(&server);
    enqueue_many(&mut client, "door", 5, "SHARED");
    client.release("door alice");
    inbox.take(5);
    assert_eq!(stream.take_all(), [APPLY_DOOR]);
}

#[test]
fn script_that_queues_replicates_nothing_of_it() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut stream = ReplicationStream::attach(&server);
    // In a call that writes something else.
    let script: &[u8] = b"redis.call('SET', 'text', 'value') \
        return redis.call('DLOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'QUEUE', 'inbox', 0, 'REQID', 'r1')";
    client.ask_args::<Value>(&[b"EVAL", script, b"1", b"door"]);
    client.release("door alice");
    inbox.granted();
    let stream = stream.take_all();
    assert_eq!(stream, ["SET text value", APPLY_DOOR]);
}

#[test]
fn restart_keeps_unread_grant_and_ends_inbox() {
    let (mut server, mut client, mut inbox) = held_with_inbox_and(AOF);
    let fence = grant_to_bob(&mut client);
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    server.crash_and_restart();
    let mut client = server.client();
    client.assert_sole_holder("door", "bob", fence, 1);
    assert_eq!(client.waiting("door"), 0);
    inbox.reconnect(&server);
    let error = inbox.error("BLOCK 60000");
    assert!(error.starts_with("NOINBOX "), "{error}");
    client.assert_error("NOINBOX", "DLOCK.ACQUIRE door carol 60000 QUEUE inbox 0 REQID r1");
    // What the process does then: a new inbox, and all open requests again.
    let mut next = Inbox::make(&server, "inbox");
    let known = client.acquire("door bob 60000 QUEUE inbox 0 REQID r1");
    assert_eq!((known.fence, known.holds), (fence, 1));
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    client.release("door bob");
    assert_eq!(shown(&next.take(1)), ["granted r1 door carol"]);
}

#[test]
fn unread_grant_comes_back_by_reqid_in_grace() {
    let (mut server, mut client, _inbox) = held_with_inbox_and(AOF);
    let fence = grant_to_bob(&mut client);
    server.add_config("dlock.startup-grace-ms 60000");
    server.crash_and_restart();
    let mut client = server.client();
    let mut next = Inbox::make(&server, "inbox");
    let known = client.acquire("door bob 60000 QUEUE inbox 0 REQID r1");
    assert_eq!((known.fence, known.holds), (fence, 1));
    assert!(client.stat("dlock_grace_left_ms") > 0);
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    next.assert_empty();
}

#[test]
fn rolled_back_unread_grant_stays_rolled_back_after_crash() {
    let (mut server, mut client, mut inbox) = held_with_inbox_and(AOF);
    let commands = [
        "DLOCK.GRANTS short 0 TTL 100",
        "DLOCK.ACQUIRE door bob 60000 QUEUE short 0 REQID r1",
        "DLOCK.ACQUIRE door carol 60000 QUEUE inbox 0 REQID r1",
        "DLOCK.RELEASE door alice",
    ];
    client.batch(&commands);
    let fence = inbox.granted().fence;
    server.crash_and_restart();
    server.client().assert_sole_holder("door", "carol", fence, 1);
}

#[test]
fn aof_rewrite_keeps_holders_and_inboxes_go_on() {
    let (mut server, mut client, mut inbox) = held_with_inbox_and(AOF);
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    rewrite_aof(&mut client);
    client.release("door alice");
    rewrite_aof(&mut client);
    let fence = inbox.granted().fence;
    server.crash_and_restart();
    server.client().assert_sole_holder("door", "bob", fence, 1);
}

#[test]
fn grant_read_before_crash_survives_it() {
    let mut server = Server::with(AOF);
    server.client().acquire("door owner0 600000");
    for n in 1..=5 {
        let mut inbox = Inbox::make(&server, "inbox");
        let mut client = server.client();
        client.enqueue(&format!("door owner{n} 600000 QUEUE inbox 0 REQID r{n}"));
        inbox.block(&mut client);
        // The reply to the release is not read: the answer may come first.
        client.send(&format!("DLOCK.RELEASE door owner{}", n - 1));
        let fence = inbox.receive().answers[0].grant().fence;
        server.crash_and_restart();
        server
            .client()
            .assert_sole_holder("door", &format!("owner{n}"), fence, 1);
    }
}

#[test]
fn promotion_keeps_unread_grant_and_knows_no_inbox() {
    let (mut server, mut client, mut inbox) = held_with_inbox();
    let replica = server.replica();
    let fence = grant_to_bob(&mut client);
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    client.sync();
    server.kill();
    let mut new = replica.client();
    new.ok("REPLICAOF NO ONE");
    inbox.reconnect(&replica);
    let error = inbox.error("BLOCK 60000");
    assert!(error.starts_with("NOINBOX "), "{error}");
    let old = inbox.cursor();
    let mut next = Inbox::make(&replica, "inbox");
    assert_ne!(next.cursor(), old);
    let known = new.acquire("door bob 60000 QUEUE inbox 0 REQID r1");
    assert_eq!((known.fence, known.holds), (fence, 1));
    new.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    new.release("door bob");
    assert_eq!(shown(&next.take(1)), ["granted r1 door carol"]);
}

#[test]
fn demotion_ends_inboxes_and_keeps_unread_grants() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let new_primary = Server::start();
    grant_to_bob(&mut client);
    inbox.call("");
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    inbox.block(&mut client);
    client.ok(&format!("REPLICAOF 127.0.0.1 {}", new_primary.port()));
    if let Some(reply) = inbox.try_receive() {
        let error = reply.expect_err("no reply to a reader of a replica");
        assert!(error.starts_with("UNBLOCKED "), "{error}");
    }
    inbox.reconnect(&server);
    for cursor in [inbox.cursor(), 0] {
        let error = inbox.error_at(cursor, "BLOCK 1000");
        assert!(error.starts_with("READONLY "), "{error}");
    }
    for gauge in ["dlock_inboxes", "dlock_waiters", "dlock_waiters_queued"] {
        assert_eq!(client.stat(gauge), 0, "{gauge}");
    }
    wait_for("no answers", || client.stat("dlock_inbox_answers") == 0);
    client.ok("REPLICAOF NO ONE");
    let error = inbox.error("");
    assert!(error.starts_with("NOINBOX "), "{error}");
    Inbox::make(&server, "inbox").assert_empty();
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

/// A replica writes nothing: a grant that nobody read stays until its owner comes back, or its lease ends.
#[test]
fn planned_failover_keeps_unread_grants() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let replica = server.replica();
    let fence = grant_to_bob(&mut client);
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    client.sync();
    client.ok(&format!("FAILOVER TO 127.0.0.1 {}", replica.port()));
    let mut new = replica.client();
    wait_for_promotion(&mut new);
    inbox.reconnect(&server);
    wait_for("the old primary to follow", || {
        client.server_info("replication", "role") == "slave"
    });
    let error = inbox.error("");
    assert!(error.starts_with("READONLY "), "{error}");
    new.assert_sole_holder("door", "bob", fence, 1);
    let _next = Inbox::make(&replica, "inbox");
    let known = new.acquire("door bob 60000 QUEUE inbox 0 REQID r1");
    assert_eq!((known.fence, known.holds), (fence, 1));
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
fn blocked_reader_of_planned_failover_is_unblocked_or_cut() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let replica = server.replica();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.sync();
    inbox.block(&mut client);
    client.ok(&format!("FAILOVER TO 127.0.0.1 {}", replica.port()));
    if let Some(reply) = inbox.try_receive() {
        let error = reply.expect_err("nothing was granted");
        assert!(error.starts_with("UNBLOCKED "), "{error}");
    }
    wait_for_promotion(&mut replica.client());
    assert_eq!(replica.client().lock("door").owners(), ["alice"]);
    assert_eq!(client.stat("dlock_waiters"), 0);
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

#[test]
fn flush_keeps_inboxes_and_unread_answers() {
    for flush in [
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "FLUSHDB",
        "SWAPDB 0 1",
        "DEBUG RELOAD NOSAVE",
    ] {
        let (server, mut client) = start();
        client.acquire("door alice 60000");
        let mut inbox = Inbox::make(&server, "inbox");
        client.enqueue("door bob 60000 QUEUE inbox 20 REQID r1");
        client.wait_for_queue("door", 0);
        if flush.starts_with("DEBUG") {
            client.ok("SAVE");
        }
        client.ask::<Value>(flush);
        assert_eq!(client.stat("dlock_inboxes"), 1, "{flush}");
        assert_eq!(shown(&inbox.take(1)), ["timeout r1 door bob"], "{flush}");
        client.ask::<Value>("DEL door");
        client.acquire("door alice 60000");
        client.enqueue("door bob 60000 QUEUE inbox 0 REQID r2");
        client.release("door alice");
        assert_eq!(shown(&inbox.take(1)), ["granted r2 door bob"], "{flush}");
    }
}

#[test]
fn rollback_after_swapdb_touches_no_other_hold() {
    let (_server, mut client) = start();
    client.acquire("door alice 60000");
    client.batch(&[
        "DLOCK.GRANTS short 0 TTL 100",
        "DLOCK.ACQUIRE door bob 60000 QUEUE short 0 REQID r1",
        "DLOCK.RELEASE door alice",
        "SWAPDB 0 1",
        "DLOCK.ACQUIRE door carol 60000",
    ]);
    client.wait_for_inboxes(0);
    // Whatever becomes of bob's hold, which is in the other database now, carol's is untouched.
    assert_eq!(client.lock("door").owners(), ["carol"]);
    assert_eq!(client.stat("dlock_waiters"), 0);
}
