//! Waiters in INFO, and a long queue in DLOCK.INFO.

use std::time::Instant;

use dlock_testkit::{Client, Inbox, Server, pause, start_with};
use redis::Value;

/// alice holds `door`, whose queue has this limit.
fn held_with_queue_limit(waiters: u32) -> (Server, Client) {
    let (server, mut client) = start_with(&format!("dlock.max-waiters-per-lock {waiters}"));
    client.acquire("door alice 60000");
    (server, client)
}

#[test]
fn dlock_info_shows_head_of_long_queue_and_counts_all() {
    const SHOWN: usize = 128;
    const WAITERS: usize = SHOWN + 22;
    let (server, mut client) = held_with_queue_limit(10_000);
    let _inbox = Inbox::make(&server, "inbox");
    for n in 0..WAITERS {
        client.enqueue(&format!("door owner{n} 60000 QUEUE inbox 0 REQID r"));
    }
    let lock = client.lock("door");
    assert_eq!(lock.waiting, WAITERS as i64);
    let first: Vec<String> = (0..SHOWN).map(|n| format!("owner{n}")).collect();
    assert_eq!(client.queue("door"), first);
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
