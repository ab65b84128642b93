//! The limit of the queue, and waiters in DLOCK.INFO and INFO.

use std::time::Instant;

use dlock_testkit::{Client, Server, Waiter, pause, start_with, wait_for};
use redis::Value;

/// alice holds `door`, whose queue has this limit.
fn held_with_queue_limit(waiters: u32) -> (Server, Client) {
    let (server, mut client) = start_with(&format!("dlock.max-waiters-per-lock {waiters}"));
    client.acquire("door alice 60000");
    (server, client)
}

#[track_caller]
fn assert_queue_full(client: &mut Client, request: &str) {
    let before = client.stat("dlock_errors_queuefull");
    let queue = client.queue("door");
    client.assert_error("QUEUEFULL", &format!("DLOCK.ACQUIRE {request}"));
    assert_eq!(client.queue("door"), queue);
    assert_eq!(client.stat("dlock_errors_queuefull"), before + 1);
}

#[test]
fn full_queue_is_refused_until_waiter_leaves() {
    let (server, mut client) = held_with_queue_limit(2);
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let carol = server.waiter("door carol 60000 BLOCK 0");
    for request in [
        "dave 60000 BLOCK 0",
        "dave 60000 SHARED BLOCK 10",
        "bob 60000 BLOCK 0",
    ] {
        assert_queue_full(&mut client, &format!("door {request}"));
    }
    carol.close();
    client.wait_for_queue("door", 1);
    let mut dave = server.waiter("door dave 60000 BLOCK 0");
    assert_queue_full(&mut client, "door eve 60000 BLOCK 0");
    client.release("door alice");
    bob.granted();
    let _eve = server.waiter("door eve 60000 BLOCK 0");
    assert_queue_full(&mut client, "door frank 60000 BLOCK 0");
    client.release("door bob");
    dave.granted();
}

#[test]
fn request_without_new_queue_entry_is_not_queuefull() {
    let (server, mut client) = held_with_queue_limit(1);
    let mut lost = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    assert_eq!(client.acquire("door alice 60000 BLOCK 0").holds, 2, "a re-entry");
    assert_eq!(client.try_acquire("door carol 60000"), None, "without BLOCK");
    client.acquire("gate alice 60000");
    let _elsewhere = server.waiter("gate bob 60000 BLOCK 0");
    let mut bob = server.send_acquire("door bob 60000 BLOCK 0 REQID r1");
    assert!(lost.error().starts_with("UNBLOCKED "), "it was replaced");
    assert_eq!(client.stat("dlock_errors_queuefull"), 0);
    client.release("door alice ALL");
    bob.granted();
}

#[test]
fn lowered_queue_limit_keeps_waiters_and_refuses_new_ones() {
    let (server, mut client) = held_with_queue_limit(10);
    let mut waiters: Vec<Waiter> = (0..3)
        .map(|n| server.waiter(&format!("door owner{n} 60000 BLOCK 0")))
        .collect();
    client.config_set("dlock.max-waiters-per-lock", "0");
    assert_queue_full(&mut client, "door dave 60000 BLOCK 0");
    assert_eq!(client.waiting("door"), 3);
    client.release("door alice");
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.granted();
        client.release(&format!("door owner{n}"));
    }
    let waited_ms = client.acquire("door dave 60000 BLOCK 0").waited_ms;
    assert_eq!(waited_ms, 0, "it is free");
    assert_queue_full(&mut client, "door eve 60000 BLOCK 0");
}

#[test]
fn dlock_info_shows_queue_in_order() {
    let (server, mut client) = held_with_queue_limit(10);
    let _waiters = [
        server.waiter("door bob 60000 BLOCK 0"),
        server.waiter("door carol 1000 SHARED BLOCK 600000"),
        server.waiter("door dave 60000 LIMIT 7 BLOCK 0 REQID r1"),
        server.waiter("door bob 60000 BLOCK 3600000 REQID r2"),
    ];
    let shown: Vec<(String, i64, i64)> = client
        .waiters("door")
        .into_iter()
        .map(|waiter| (waiter.owner, waiter.limit, waiter.timeout_ms))
        .collect();
    let expected = [
        ("bob".into(), 1, -1),
        ("carol".into(), -1, 600_000),
        ("dave".into(), 7, -1),
        ("bob".into(), 1, 3_600_000),
    ];
    assert_eq!(shown, expected);
    let lock = client.lock("door");
    assert_eq!((lock.limit, lock.waiting), (1, 4));
    assert_eq!(lock.owners(), ["alice"]);
    let resp3 = server.client_resp3().lock("door");
    assert_eq!((resp3.waiting, resp3.waiters.len()), (4, 4));
}

#[test]
fn dlock_info_shows_wait_time_of_each_waiter() {
    let (server, mut client) = held_with_queue_limit(10);
    let start = Instant::now();
    let _bob = server.waiter("door bob 60000 BLOCK 0");
    pause(200);
    let middle = Instant::now();
    let _carol = server.waiter("door carol 60000 BLOCK 0");
    let waiters = client.waiters("door");
    assert!((200..=start.elapsed().as_millis()).contains(&waiters[0].waited_ms.cast_unsigned().into()));
    assert!((0..=middle.elapsed().as_millis()).contains(&waiters[1].waited_ms.cast_unsigned().into()));
}

#[test]
fn dlock_info_shows_head_of_long_queue_and_counts_all() {
    const SHOWN: usize = 128;
    const WAITERS: usize = SHOWN + 22;
    let (server, mut client) = held_with_queue_limit(10_000);
    let waiters: Vec<Waiter> = (0..WAITERS)
        .map(|n| server.waiter(&format!("door owner{n} 60000 BLOCK 0")))
        .collect();
    let lock = client.lock("door");
    assert_eq!(lock.waiting, WAITERS as i64);
    let first: Vec<String> = (0..SHOWN).map(|n| format!("owner{n}")).collect();
    assert_eq!(client.queue("door"), first);
    drop(waiters);
    client.wait_for_queue("door", 0);
}

#[test]
fn dlock_info_shows_queue_without_lock() {
    let (server, mut client) = start_with("dlock.startup-grace-ms 60000");
    let waiter = server.waiter("door bob 60000 LIMIT 2 BLOCK 0");
    let lock = client.lock("door");
    assert!(lock.holders.is_empty());
    assert_eq!((lock.limit, lock.waiting), (-1, 1));
    assert_eq!(client.owner("door"), None);
    assert!(!client.exists("door"), "waiters make no key");
    waiter.close();
    wait_for("an empty queue", || client.find_lock("door").is_none());
}

#[test]
fn dlock_info_has_no_side_effects() {
    let (server, mut client) = held_with_queue_limit(10);
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let before = client.info_section("dlock");
    for _ in 0..3 {
        client.lock("door");
        client.ask::<Value>("INFO dlock");
    }
    let mut after = client.info_section("dlock");
    after.insert(
        "dlock_longest_wait_ms".into(),
        before["dlock_longest_wait_ms"].clone(),
    );
    assert_eq!(after, before);
    client.release("door alice");
    bob.granted();
}

#[test]
fn gauges_count_current_waiters() {
    let (server, mut client) = held_with_queue_limit(10);
    let gauges =
        |client: &mut Client| ["dlock_waiters", "dlock_contended_locks"].map(|gauge| client.stat(gauge));
    assert_eq!(gauges(&mut client), [0, 0]);
    assert_eq!(client.stat("dlock_longest_wait_ms"), 0);
    let start = Instant::now();
    client.acquire("gate alice 60000");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    let mut dave = server.waiter("gate dave 60000 BLOCK 0");
    assert_eq!(gauges(&mut client), [3, 2]);
    pause(150);
    let longest = client.stat("dlock_longest_wait_ms");
    let is_expected = longest >= 150 && u128::from(longest.cast_unsigned()) <= start.elapsed().as_millis();
    assert!(is_expected, "{longest} ms");
    client.release("door alice");
    bob.granted();
    assert_eq!(gauges(&mut client), [2, 2]);
    client.release("door bob");
    carol.granted();
    assert_eq!(gauges(&mut client), [1, 1]);
    client.ask::<i64>("DEL gate");
    dave.granted();
    assert_eq!(gauges(&mut client), [0, 0]);
    assert_eq!(client.stat("dlock_longest_wait_ms"), 0);
}

#[test]
fn counters_tell_how_waiting_ended() {
    let (server, mut client) = held_with_queue_limit(10);
    let counters = |client: &mut Client| {
        [
            "dlock_grants_from_queue",
            "dlock_wait_timeouts",
            "dlock_acquired",
            "dlock_reentered",
            "dlock_not_granted",
        ]
        .map(|counter| client.stat(counter))
    };
    assert_eq!(counters(&mut client), [0, 0, 1, 0, 0]);
    server.send_acquire("door bob 60000 BLOCK 50").assert_null();
    let timed_out = counters(&mut client);
    assert_eq!(timed_out[..4], [0, 1, 1, 0]);
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    let mut again = server.waiter("door bob 60000 BLOCK 0");
    pause(100);
    client.release("door alice");
    let waited_ms = bob.granted().waited_ms + again.granted().waited_ms;
    assert!(waited_ms >= 200, "{waited_ms}");
    let granted = counters(&mut client);
    assert_eq!(granted[..3], [2, 1, 2], "two requests, one new holder");
    assert_eq!(client.stat("dlock_waited_ms"), waited_ms.cast_signed());
    server.waiter("door carol 60000 BLOCK 0").close();
    client.wait_for_queue("door", 0);
    assert_eq!(counters(&mut client)[..3], [2, 1, 2], "a departure is no timeout");
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
    // A grant without waiting is no grant from the queue.
    client.release("door bob ALL");
    client.acquire("door dave 60000 BLOCK 0");
    assert_eq!(client.stat("dlock_grants_from_queue"), 2);
}

#[test]
fn refused_request_counts_only_as_its_error() {
    let (server, mut client) = held_with_queue_limit(1);
    client.acquire("gate bob 60000");
    let _bob = server.waiter("door bob 60000 BLOCK 0");
    let before = client.info_section("dlock");
    client.error_code("DLOCK.ACQUIRE gate alice 60000 BLOCK 0");
    client.error_code("DLOCK.ACQUIRE door carol 60000 BLOCK 0");
    let after = client.info_section("dlock");
    let changed = after.keys().filter(|field| after[*field] != before[*field]);
    let mut changed: Vec<&str> = changed.map(String::as_str).collect();
    changed.retain(|field| *field != "dlock_longest_wait_ms");
    assert_eq!(changed, ["dlock_errors_deadlock", "dlock_errors_queuefull"]);
}
