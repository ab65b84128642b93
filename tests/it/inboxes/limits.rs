//! What bounds waiting through inboxes, and what a server serves while it refuses writes.

use std::fs;
use std::time::{Duration, Instant};

use dlock_testkit::{Client, Inbox, Waiter, pause, start_with, wait_for};

use super::{enqueue_many, held_with_inbox, held_with_inbox_and, shown};

/// The request must be refused because of this setting, and nothing may change.
#[track_caller]
fn assert_full(client: &mut Client, setting: &str, command: &str) {
    let counted = |client: &mut Client| {
        ["dlock_waiters", "dlock_inboxes", "dlock_inbox_answers"].map(|field| client.stat(field))
    };
    let (before, errors) = (counted(client), client.stat("dlock_errors_queuefull"));
    let error = client.error(command);
    assert!(error.starts_with("QUEUEFULL "), "{command}: {error}");
    let names = |setting: &str| {
        let mut words = error.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '.'));
        words.any(|word| word.trim_end_matches('.') == setting)
    };
    for other in [
        "dlock.max-waiters",
        "dlock.max-waiters-per-lock",
        "dlock.max-inboxes",
    ] {
        assert_eq!(names(other), other == setting, "{error}");
    }
    assert_eq!(counted(client), before);
    assert_eq!(client.stat("dlock_errors_queuefull"), errors + 1);
}

#[test]
fn full_queue_of_lock_is_refused_and_named() {
    let (server, mut client, mut inbox) = held_with_inbox_and("dlock.max-waiters-per-lock 2");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    for wait in ["QUEUE inbox 0 REQID r1", "BLOCK 0"] {
        let request = format!("DLOCK.ACQUIRE door dave 60000 {wait}");
        assert_full(&mut client, "dlock.max-waiters-per-lock", &request);
    }
    let before = client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(before, 0, "a repeated request needs no second place");
    client.release("door alice");
    inbox.granted();
    client.enqueue("door dave 60000 QUEUE inbox 0 REQID r1");
    client.release("door bob");
    carol.granted();
}

#[test]
fn waiters_of_all_locks_count_against_total() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.acquire("gate alice 60000");
    // The inbox does not count.
    client.config_set("dlock.max-waiters", "3");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    let _carol = server.waiter("gate carol 60000 BLOCK 0");
    client.enqueue("gate bob 60000 QUEUE inbox 0 REQID r2");
    for command in [
        "DLOCK.ACQUIRE door dave 60000 QUEUE inbox 0 REQID r1",
        "DLOCK.ACQUIRE gate dave 60000 BLOCK 0",
    ] {
        assert_full(&mut client, "dlock.max-waiters", command);
    }
    assert_eq!(
        client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1"),
        0,
        "a repeat"
    );
    assert_eq!(client.acquire("free dave 60000 QUEUE inbox 0 REQID r1").holds, 1);
    assert_eq!(client.acquire("door alice 60000 BLOCK 0").holds, 2, "a re-entry");
    client.release("door bob REQID r1");
    // An answer that is not acknowledged counts as the waiter did.
    let cursor = inbox.cursor();
    for options in ["", "BLOCK 1"] {
        assert_full(
            &mut client,
            "dlock.max-waiters",
            "DLOCK.ACQUIRE door dave 60000 BLOCK 0",
        );
        assert_eq!(inbox.call_at(cursor, options).answers.len(), 1);
    }
    inbox.assert_empty();
    client.enqueue("door dave 60000 QUEUE inbox 0 REQID r1");
    Inbox::make(&server, "other");
}

#[test]
fn inboxes_have_a_limit_of_their_own() {
    let (server, mut client) = start_with("dlock.max-inboxes 3");
    let mut inboxes: Vec<Inbox> = (0..3)
        .map(|n| Inbox::make(&server, &format!("inbox{n}")))
        .collect();
    assert_full(&mut client, "dlock.max-inboxes", "DLOCK.GRANTS inbox3 0");
    inboxes[0].assert_empty();
    inboxes[1].call_at(0, "");
    inboxes[2].call("TTL 0");
    client.wait_for_inboxes(2);
    Inbox::make(&server, "inbox3");
    assert_full(&mut client, "dlock.max-inboxes", "DLOCK.GRANTS inbox4 0");
    client.acquire("door alice 60000");
    client.enqueue("door bob 60000 QUEUE inbox0 0 REQID r1");
}

#[test]
fn limit_of_inboxes_changes_at_once_and_ends_none() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.config_set("dlock.max-inboxes", "0");
    assert_full(&mut client, "dlock.max-inboxes", "DLOCK.GRANTS other 0");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
    client.config_set("dlock.max-inboxes", "2");
    Inbox::make(&server, "other");
}

/// The former inbox gets an answer, which counts.
#[test]
fn request_that_changes_inboxes_needs_room_for_its_answer() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut other = Inbox::make(&server, "other");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.config_set("dlock.max-waiters", "1");
    for wait in ["QUEUE other 0", "BLOCK 0"] {
        let request = format!("DLOCK.ACQUIRE door bob 60000 {wait} REQID r1");
        assert_full(&mut client, "dlock.max-waiters", &request);
    }
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    inbox.assert_empty();
    client.config_set("dlock.max-waiters", "2");
    client.enqueue("door bob 60000 QUEUE other 0 REQID r1");
    assert_eq!(shown(&inbox.take(1)), ["error r1 door bob UNBLOCKED"]);
    client.release("door alice");
    assert_eq!(shown(&other.take(1)), ["granted r1 door bob"]);
}

#[test]
fn end_of_inbox_frees_all_that_it_counted() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.config_set("dlock.max-waiters", "100");
    enqueue_many(&mut client, "door", 100, "");
    for n in 0..50 {
        client.release(&format!("door owner{n} REQID r{n}"));
    }
    let request = "DLOCK.ACQUIRE door bob 60000 BLOCK 0";
    assert_full(&mut client, "dlock.max-waiters", request);
    inbox.call("TTL 0");
    client.wait_for_queue("door", 0);
    wait_for("room for answers", || client.stat("dlock_inbox_answers") == 0);
    let _next = Inbox::make(&server, "inbox");
    enqueue_many(&mut client, "door", 100, "");
    assert_full(&mut client, "dlock.max-waiters", request);
}

#[test]
fn lowered_total_keeps_waiters_and_answers() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    enqueue_many(&mut client, "door", 10, "SHARED");
    client.config_set("dlock.max-waiters", "1");
    assert_full(
        &mut client,
        "dlock.max-waiters",
        "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r",
    );
    client.release("door alice");
    assert_eq!(inbox.take(10).len(), 10);
    client.config_set("dlock.max-waiters", "1000000");
    inbox.assert_empty();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r");
}

#[test]
fn readers_that_never_acknowledge_are_bounded() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.config_set("dlock.max-waiters", "50");
    let cursor = inbox.cursor();
    let mut answers = 0;
    while client
        .call(&format!(
            "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r{answers}"
        ))
        .is_ok()
    {
        client.release(&format!("door bob REQID r{answers}"));
        answers += 1;
        inbox.call_at(cursor, "");
    }
    assert_eq!(answers, 50);
    assert_eq!(inbox.call_at(cursor, "").answers.len(), answers);
}

#[test]
fn out_of_memory_refuses_queue_and_serves_readers() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door carol 60000 QUEUE inbox 1000 REQID r1");
    client.config_set("maxmemory", "1");
    client.assert_error("OOM", "DLOCK.ACQUIRE door dave 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
    assert_eq!(shown(&inbox.take(1)), ["timeout r1 door carol"]);
    inbox.assert_empty();
    // The same while answers are there. Only a new inbox would take memory.
    let mut other = inbox.other_reader(&server);
    other.assert_empty();
    let before = client.stat("dlock_inboxes");
    client.assert_error("OOM", "DLOCK.GRANTS other 0");
    let script = b"return redis.call('DLOCK.GRANTS', 'other', '0')";
    assert_eq!(client.error_code_args(&[b"EVAL", script, b"0"]), "OOM");
    assert_eq!(client.stat("dlock_inboxes"), before);
    client.assert_error("NOINBOX", "DLOCK.GRANTS other 1");
    client.config_set("maxmemory", "0");
    Inbox::make(&server, "other");
}

#[test]
fn missing_replicas_refuse_queue_and_serve_readers() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.acquire("gate alice 60000");
    client.enqueue("gate carol 60000 QUEUE inbox 2000 REQID r1");
    client.batch(&[
        "DLOCK.ACQUIRE hall alice 1000",
        "DLOCK.ACQUIRE hall bob 60000 QUEUE inbox 0 REQID r1",
    ]);
    client.config_set("min-replicas-to-write", "1");
    let request = "DLOCK.ACQUIRE door dave 60000 QUEUE inbox 0 REQID r1";
    client.assert_error("NOREPLICAS", request);
    Inbox::make(&server, "other").assert_empty();
    // Nothing is granted meanwhile.
    assert_eq!(shown(&inbox.take(1)), ["timeout r1 gate carol"]);
    client.wait_for_lease_end("hall", "alice");
    assert_eq!(inbox.call("BLOCK 200").answers, []);
    let _replica = server.replica();
    assert_eq!(shown(&inbox.take(1)), ["granted r1 hall bob"]);
}

#[test]
fn failed_save_refuses_queue_and_serves_readers() {
    let (server, mut client, mut inbox) = held_with_inbox_and("save 3600 1000000\ndbfilename obstacle");
    let obstacle = server.directory().join("obstacle");
    fs::create_dir(&obstacle).expect("the directory of the server is writable");
    client.acquire("gate alice 60000");
    client.enqueue("gate carol 60000 QUEUE inbox 2000 REQID r1");
    client.ask::<String>("BGSAVE");
    wait_for("a save that fails", || {
        client.server_info("persistence", "rdb_last_bgsave_status") == "err"
    });
    let request = "DLOCK.ACQUIRE door dave 60000 QUEUE inbox 0 REQID r1";
    client.assert_error("MISCONF", request);
    Inbox::make(&server, "other").assert_empty();
    assert_eq!(shown(&inbox.take(1)), ["timeout r1 gate carol"]);
    fs::remove_dir(&obstacle).expect("the directory of the server is writable");
}

#[test]
fn paused_writes_hold_queue_back_and_serve_readers() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.acquire("gate alice 60000");
    client.enqueue("gate carol 60000 QUEUE inbox 2000 REQID r1");
    client.batch(&[
        "DLOCK.ACQUIRE hall alice 1000",
        "DLOCK.ACQUIRE hall bob 60000 QUEUE inbox 0 REQID r1",
    ]);
    client.pause_writes_after(&[]);
    let mut held_back = Waiter::connect(&server);
    held_back.send("DLOCK.ACQUIRE door dave 60000 QUEUE inbox 0 REQID r1");
    Inbox::make(&server, "other").assert_empty();
    assert_eq!(
        inbox.call("BLOCK 1").answers,
        [],
        "a blocked call is served as well"
    );
    assert_eq!(shown(&inbox.take(1)), ["timeout r1 gate carol"]);
    client.wait_for_lease_end("hall", "alice");
    assert_eq!(inbox.call("BLOCK 200").answers, [], "nothing is granted");
    assert!(held_back.is_silent());
    client.ok("CLIENT UNPAUSE");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 hall bob"]);
    held_back.next_reply();
    assert_eq!(client.queue("door"), ["dave"]);
}

#[test]
fn paused_clients_hold_readers_back() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.release("door alice");
    let mut other = Inbox::make(&server, "other");
    client.batch(&["CLIENT PAUSE 1500 ALL"]);
    let start = Instant::now();
    inbox.send("");
    other.send("BLOCK 1");
    pause(500);
    assert!(inbox.connection().is_silent());
    assert_eq!(shown(&inbox.receive().answers), ["granted r1 door bob"]);
    assert_eq!(other.receive().answers, []);
    assert!(start.elapsed() >= Duration::from_millis(1_000));
}

#[test]
fn blocked_reader_goes_on_after_pause_of_all_clients() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.batch(&[
        "DLOCK.ACQUIRE hall alice 800",
        "DLOCK.ACQUIRE hall bob 60000 QUEUE inbox 0 REQID r1",
    ]);
    inbox.block(&mut client);
    client.batch(&["CLIENT PAUSE 1500 ALL"]);
    assert_eq!(shown(&inbox.receive().answers), ["granted r1 hall bob"]);
}

/// Far more waiters than the server takes clients.
#[test]
fn queued_requests_do_not_count_as_clients() {
    const WAITERS: usize = 500;
    let (_server, mut client, mut inbox) = held_with_inbox_and("maxclients 20");
    enqueue_many(&mut client, "door", WAITERS, "SHARED");
    client.release("door alice");
    assert_eq!(inbox.take(WAITERS).len(), WAITERS);
}

#[test]
fn many_queued_requests_leak_no_memory() {
    const REQUESTS: usize = 500;
    /// Leaking each request's owner and key would be more, over all rounds.
    const SLACK: i64 = 150_000;
    let (_server, mut client, mut inbox) = held_with_inbox();
    let mut before = 0;
    for round in 0..7 {
        enqueue_many(&mut client, "door", REQUESTS, "SHARED");
        match round % 3 {
            0 => {
                client.release("door alice");
                client.wait_for_queue("door", 0);
                client.ask::<i64>("DEL door");
                client.acquire("door alice 60000");
            }
            1 => {
                let withdrawals = (0..REQUESTS).map(|n| format!("DLOCK.RELEASE door owner{n} REQID r{n}"));
                client.batch(&withdrawals.collect::<Vec<_>>());
            }
            _ => {
                client.ok("SET door text");
                wait_for("no waiters", || client.stat("dlock_waiters") == 0);
                client.ask::<i64>("DEL door");
                client.acquire("door alice 60000");
            }
        }
        inbox.take(REQUESTS);
        inbox.assert_empty();
        let used: i64 = client.server_number("memory", "used_memory");
        if round == 2 {
            before = used;
        }
        assert!(
            round <= 2 || used < before + SLACK,
            "round {round}: {before} {used}"
        );
    }
}

/// A waiter that changes inboxes leaves an answer in the former one.
#[test]
fn request_that_changes_inboxes_is_bounded_by_total() {
    let (server, mut client, _inbox) = held_with_inbox();
    let _other = Inbox::make(&server, "other");
    // One waiter, and room for one answer.
    client.config_set("dlock.max-waiters", "2");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door bob 60000 QUEUE other 0 REQID r1");
    let back = "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1";
    assert_full(&mut client, "dlock.max-waiters", back);
    assert_eq!(client.queue("door"), ["bob"], "it keeps its place");
    let same = client.enqueue("door bob 60000 QUEUE other 0 REQID r1");
    assert_eq!(same, 0, "the same inbox needs no room");
}
