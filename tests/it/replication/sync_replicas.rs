//! Grants that replicas have before anybody is told of them: `dlock.min-sync-replicas`.

use std::time::{Duration, Instant};

use dlock_testkit::{Client, Inbox, Server, Waiter, start, wait_for};
use redis::Value;

use crate::fixtures::{assert_refused, wait_for_promotion};

/// Long enough to see that nobody is told anything meanwhile.
const MEANWHILE: Duration = Duration::from_millis(150);

const ADVICE: &str = "outside of transactions and scripts";

/// A primary that tells a grant only when its replica has it, however long that takes.
fn start_with_replica() -> (Server, Server, Client) {
    let (primary, mut client) = start();
    let replica = primary.replica();
    client.config_set("dlock.sync-timeout-ms", "60000");
    client.config_set("dlock.min-sync-replicas", "1");
    wait_for("the replica", || client.stat("dlock_sync_replicas") == 1);
    (primary, replica, client)
}

/// What is held back from now on is so for 200 ms at most.
fn stop(replica: &Server, client: &mut Client) {
    client.config_set("dlock.sync-timeout-ms", "200");
    replica.stop();
}

/// Sends a command that is not answered while the replica is stopped.
fn send(server: &Server, command: &str) -> Waiter {
    let mut waiter = Waiter::connect(server);
    waiter.send(command);
    waiter
}

fn wait_for_held_back(client: &mut Client, count: i64) {
    wait_for("replies that are held back", || {
        client.stat("dlock_sync_waiting") == count
    });
}

#[test]
fn what_gives_a_hold_is_told_only_when_the_replica_has_it() {
    let (primary, replica, mut client) = start_with_replica();
    let fence = client.acquire("door alice 60000 REQID first").fence;
    replica.stop();
    let mut waiters = [
        "DLOCK.ACQUIRE gate bob 60000",
        "DLOCK.ACQUIRE door alice 60000",
        "DLOCK.ACQUIRE door alice 60000 REQID first",
        "DLOCK.EXTEND door alice 90000",
    ]
    .map(|command| send(&primary, command));
    wait_for_held_back(&mut client, 4);
    assert!(
        waiters
            .iter_mut()
            .all(|waiter| waiter.reply_within(MEANWHILE).is_none())
    );
    replica.resume();
    let [gate, again, repeated, extended] = &mut waiters;
    assert_eq!(gate.granted().holds, 1);
    assert_eq!((again.granted().holds, repeated.granted().fence), (2, fence));
    let Value::Int(lease_ms) = extended.next_reply() else {
        panic!("a lease")
    };
    assert!((60_001..=90_000).contains(&lease_ms), "{lease_ms}");
    assert_eq!(replica.client().owner("gate").as_deref(), Some("bob"));
    assert_eq!(client.stat("dlock_sync_waiting"), 0);
}

#[test]
fn what_gives_no_hold_is_told_at_once() {
    let (_primary, replica, mut client) = start_with_replica();
    client.acquire("door alice 60000");
    replica.stop();
    assert!(client.try_acquire("door bob 60000").is_none());
    client.assert_error("NOTOWNER", "DLOCK.EXTEND door bob 60000");
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
    assert_eq!(client.release("door alice"), 0);
    replica.resume();
}

#[test]
fn handover_is_told_only_when_the_replica_has_it() {
    let (primary, replica, mut client) = start_with_replica();
    client.acquire("door alice 60000");
    let mut bob = primary.waiter("door bob 60000 BLOCK 0");
    replica.stop();
    assert_eq!(client.release("door alice"), 0);
    wait_for_held_back(&mut client, 1);
    assert!(bob.reply_within(MEANWHILE).is_none());
    replica.resume();
    assert_eq!(bob.granted().holds, 1);
    assert_eq!(replica.client().owner("door").as_deref(), Some("bob"));
}

#[test]
fn granted_answer_reaches_the_inbox_only_when_the_replica_has_it() {
    let (primary, replica, mut client) = start_with_replica();
    client.acquire("door alice 60000");
    let mut inbox = Inbox::make(&primary, "bob");
    client.enqueue("door bob 60000 QUEUE bob 0 REQID r");
    inbox.block(&mut client);
    replica.stop();
    assert_eq!(client.release("door alice"), 0);
    wait_for_held_back(&mut client, 1);
    assert!(inbox.connection().reply_within(MEANWHILE).is_none());
    replica.resume();
    assert_eq!(inbox.receive().answers[0].shown(), "granted r door bob");
}

#[test]
fn grant_that_the_replica_lacks_is_rolled_back() {
    let (_primary, replica, mut client) = start_with_replica();
    stop(&replica, &mut client);
    let start = Instant::now();
    client.assert_error("NOREPLICAS", "DLOCK.ACQUIRE door alice 60000");
    assert!(
        start.elapsed() >= Duration::from_millis(200),
        "{:?}",
        start.elapsed()
    );
    wait_for("the roll-back", || !client.exists("door"));
    assert_eq!(client.stat("dlock_grants_rolled_back"), 1);
    assert_eq!(client.stat("dlock_sync_timeouts"), 1);
    let at_once = Instant::now();
    client.assert_error("NOREPLICAS", "DLOCK.ACQUIRE door alice 60000");
    assert!(
        at_once.elapsed() < Duration::from_millis(200),
        "{:?}",
        at_once.elapsed()
    );
    replica.resume();
    wait_for("a grant", || client.call("DLOCK.ACQUIRE door bob 60000").is_ok());
    client.sync();
    assert_eq!(replica.client().lock("door").owners(), ["bob"]);
}

#[test]
fn extend_that_the_replica_lacks_leaves_the_lease_longer() {
    let (_primary, replica, mut client) = start_with_replica();
    client.acquire("door alice 10000");
    stop(&replica, &mut client);
    client.assert_error("NOREPLICAS", "DLOCK.EXTEND door alice 60000");
    assert!(client.lock("door").holder("alice").lease_ms > 10_000);
    replica.resume();
}

#[test]
fn waiters_wait_until_the_replica_answers_again() {
    let (primary, replica, mut client) = start_with_replica();
    client.acquire("door alice 60000");
    let mut bob = primary.waiter("door bob 60000 BLOCK 0");
    let mut carol = primary.waiter("door carol 60000 BLOCK 0");
    stop(&replica, &mut client);
    assert_eq!(client.release("door alice"), 0);
    assert_refused(&mut bob, "NOREPLICAS");
    wait_for("the roll-back", || !client.exists("door"));
    assert!(carol.reply_within(MEANWHILE).is_none());
    assert_eq!(client.stat("dlock_sync_timeouts"), 1, "carol was not tried");
    replica.resume();
    assert_eq!(carol.granted().holds, 1);
}

#[test]
fn without_a_replica_requests_are_rejected_at_once_and_waiters_wait() {
    let (primary, mut replica, mut client) = start_with_replica();
    client.acquire("door alice 60000");
    replica.kill();
    wait_for("the loss of the replica", || {
        client.stat("dlock_sync_replicas") == 0
    });
    client.assert_error("NOREPLICAS", "DLOCK.ACQUIRE gate bob 60000");
    client.assert_error("NOREPLICAS", "DLOCK.EXTEND door alice 90000");
    let mut carol = primary.waiter("door carol 60000 BLOCK 0");
    let mut dave = primary.waiter("gate dave 60000 BLOCK 0");
    assert_eq!(client.release("door alice"), 0);
    assert!(carol.is_silent() && dave.is_silent());
    let _replica = primary.replica();
    assert_eq!((carol.granted().holds, dave.granted().holds), (1, 1));
}

#[test]
fn client_that_disconnects_before_it_is_told_leaves_no_hold() {
    let (primary, replica, mut client) = start_with_replica();
    stop(&replica, &mut client);
    let waiter = send(&primary, "DLOCK.ACQUIRE door alice 60000");
    wait_for_held_back(&mut client, 1);
    waiter.close();
    wait_for("the roll-back", || !client.exists("door"));
    replica.resume();
}

#[test]
fn repeated_request_takes_the_place_of_one_that_was_not_told() {
    let (primary, replica, mut client) = start_with_replica();
    replica.stop();
    let mut first = send(&primary, "DLOCK.ACQUIRE door alice 60000 REQID r");
    wait_for_held_back(&mut client, 1);
    let mut again = send(&primary, "DLOCK.ACQUIRE door alice 60000 REQID r");
    assert_refused(&mut first, "UNBLOCKED");
    first.close();
    replica.resume();
    assert_eq!(again.granted().holds, 1);
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
}

#[test]
fn transactions_and_scripts_are_told_to_send_it_alone() {
    let (_primary, _replica, mut client) = start_with_replica();
    client.acquire("door alice 60000");
    let replies = client.batch(&[
        "MULTI",
        "DLOCK.ACQUIRE gate bob 60000",
        "DLOCK.EXTEND door alice 60000",
        "DLOCK.RELEASE door alice",
        "EXEC",
    ]);
    let replies = format!("{:?}", replies.last());
    assert_eq!(replies.matches(ADVICE).count(), 2, "{replies}");
    assert!(replies.contains("int(0)"), "RELEASE works: {replies}");
    let script = [
        &b"EVAL"[..],
        b"return redis.call('DLOCK.ACQUIRE', 'door', 'bob', 60000)",
        b"0",
    ];
    let error = client.call_args(&script).expect_err("an error").to_string();
    assert!(error.contains(ADVICE), "{error}");
    assert!(!client.exists("gate") && !client.exists("door"));
}

#[test]
fn queue_in_a_transaction_is_answered_when_the_replica_has_it() {
    let (primary, replica, mut client) = start_with_replica();
    let mut inbox = Inbox::make(&primary, "bob");
    replica.stop();
    let replies = client.batch(&[
        "MULTI",
        "DLOCK.ACQUIRE door bob 60000 QUEUE bob 0 REQID r",
        "EXEC",
    ]);
    let queued = Value::Array(vec![Value::Array(vec![Value::Int(0)])]);
    assert_eq!(replies.last(), Some(&queued));
    inbox.block(&mut client);
    assert!(inbox.connection().reply_within(MEANWHILE).is_none());
    replica.resume();
    assert_eq!(inbox.receive().answers[0].shown(), "granted r door bob");
}

#[test]
fn setting_excludes_a_quorum() {
    let (_server, mut client) = start();
    client.config_set("dlock.quorum", "yes");
    let error = client.error("CONFIG SET dlock.min-sync-replicas 1");
    assert!(error.contains("set only one of them"), "{error}");
    assert_eq!(client.config("dlock.min-sync-replicas"), "0");
    client.ok("CONFIG SET dlock.min-sync-replicas 1 dlock.quorum no");
    client.assert_error("ERR", "CONFIG SET dlock.quorum yes");
    assert!(Server::try_with("dlock.min-sync-replicas 1\ndlock.quorum yes").is_err());
}

#[test]
fn setting_that_is_lowered_lets_go_what_is_held_back() {
    let (primary, replica, mut client) = start_with_replica();
    replica.stop();
    let mut alice = send(&primary, "DLOCK.ACQUIRE door alice 60000");
    wait_for_held_back(&mut client, 1);
    client.config_set("dlock.min-sync-replicas", "0");
    assert_eq!(alice.granted().holds, 1);
    replica.resume();
}

#[test]
fn server_that_becomes_a_replica_ends_what_is_held_back() {
    let (primary, replica, mut client) = start_with_replica();
    let mut other = replica.client();
    let port = replica.port();
    replica.stop();
    let mut alice = send(&primary, "DLOCK.ACQUIRE door alice 60000");
    wait_for_held_back(&mut client, 1);
    client.ok(&format!("REPLICAOF 127.0.0.1 {port}"));
    assert_refused(&mut alice, "UNBLOCKED");
    replica.resume();
    other.ok("REPLICAOF NO ONE");
    wait_for_promotion(&mut other);
    assert_eq!(client.stat("dlock_sync_waiting"), 0);
}

#[test]
fn requests_for_acknowledgements_are_not_logged() {
    let (primary, mut client) = dlock_testkit::start_with("appendonly yes\nauto-aof-rewrite-percentage 0");
    let replica = primary.replica_with("appendonly yes");
    client.config_set("dlock.min-sync-replicas", "1");
    wait_for("the replica", || client.stat("dlock_sync_replicas") == 1);
    for server in [&primary, &replica] {
        client.acquire("door alice 60000");
        client.release("door alice");
        client.sync();
        assert!(!log_of(server).contains("GETACK"));
    }
}

/// All of a server's append-only files.
fn log_of(server: &Server) -> String {
    let folder = server.directory().join("appendonlydir");
    let files = std::fs::read_dir(folder).expect("the server has a log");
    let read = |file: std::io::Result<std::fs::DirEntry>| std::fs::read(file.expect("a file").path());
    let logs = files.map(|file| read(file).expect("the log is readable"));
    logs.map(|log| String::from_utf8_lossy(&log).into_owned())
        .collect()
}
