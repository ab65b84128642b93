//! The end of an inbox: a while after its last reader, and never while the server kept readers out.

use std::time::{Duration, Instant};

use dlock_testkit::{
    Client, Delivery, Proxy, Waiter, Way, assert_elapsed_at_most, pause, start, start_with, wait_for,
};
use redis::Value;

use super::{enqueue_many, held_with_inbox, shown};

/// Makes an inbox with this time to live and queues bob for `door`, with nothing in between. Returns the cursor.
#[track_caller]
fn bob_in_short_inbox(client: &mut Client, ttl_ms: u64) -> u64 {
    let replies = client.batch(&[
        &format!("DLOCK.GRANTS short 0 TTL {ttl_ms}"),
        "DLOCK.ACQUIRE door bob 60000 QUEUE short 0 REQID r1",
    ]);
    assert!(matches!(replies[1], Value::Array(_)), "{replies:?}");
    Delivery::parse(&replies[0]).cursor
}

#[test]
fn inbox_lives_5_seconds_by_default() {
    let (_server, mut client) = start();
    let made = Instant::now();
    client.ask::<Value>("DLOCK.GRANTS inbox 0");
    client.wait_for_inboxes(0);
    assert!(made.elapsed() >= Duration::from_secs(5));
    assert_elapsed_at_most(Duration::from_secs(5), made);
}

#[test]
fn half_open_reader_keeps_inbox_for_its_timeout_and_ttl() {
    let (server, mut client, _inbox) = held_with_inbox();
    let proxy = Proxy::to(server.port());
    let mut reader = Client::connect(&proxy.url());
    let made = Delivery::parse(&reader.ask("DLOCK.GRANTS half 0 TTL 60000"));
    client.enqueue("door bob 60000 QUEUE half 0 REQID r1");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    // Nothing arrives any more from the server, which does not notice.
    proxy.freeze(Way::ToClient);
    let start = Instant::now();
    reader.send(&format!("DLOCK.GRANTS half {} BLOCK 1000 TTL 300", made.cursor));
    // It lives for another ttl after the reply that nobody reads.
    client.wait_for_inboxes(1);
    assert!(start.elapsed() >= Duration::from_millis(1_300));
    assert_elapsed_at_most(Duration::from_millis(1_300), start);
    client.wait_for_queue("door", 1);
    client.release("door alice");
    carol.granted();
}

#[test]
fn time_to_live_goes_on_after_pause() {
    for kind in ["WRITE", "ALL"] {
        let (_server, mut client, _inbox) = held_with_inbox();
        bob_in_short_inbox(&mut client, 1_000);
        client.batch(&[format!("CLIENT PAUSE 1500 {kind}")]);
        let paused = Instant::now();
        client.wait_for_inboxes(1);
        // It cannot have ended during the pause, nor before the rest of its time has passed after it.
        assert!(paused.elapsed() >= Duration::from_millis(1_500), "{kind}");
        assert_elapsed_at_most(Duration::from_millis(2_500), paused);
        client.wait_for_queue("door", 0);
    }
}

/// Even if it falls between two ticks.
#[test]
fn short_pause_stops_time_to_live_at_hz_1() {
    let (_server, mut client) = start_with("hz 1");
    client.acquire("door alice 60000");
    for round in 0..3 {
        let start = Instant::now();
        bob_in_short_inbox(&mut client, 1_000);
        pause(100 * round);
        client.batch(&["CLIENT PAUSE 60000 WRITE"]);
        let pausing = Instant::now();
        pause(500);
        // At least: the server may have been paused for longer.
        let paused = pausing.elapsed();
        client.ok("CLIENT UNPAUSE");
        client.wait_for_inboxes(0);
        let lived = start.elapsed();
        assert!(
            lived >= Duration::from_millis(1_000) + paused,
            "round {round}: {lived:?} {paused:?}"
        );
    }
}

#[test]
fn reader_that_called_while_server_was_busy_is_served_before_end() {
    for options in ["", "BLOCK 60000"] {
        let (server, mut client, _inbox) = held_with_inbox();
        let (mut reader, mut sleeper) = (Waiter::connect(&server), Waiter::connect(&server));
        // Many others have requests, too.
        let mut others: Vec<Waiter> = (0..50).map(|_| Waiter::connect(&server)).collect();
        let cursor = bob_in_short_inbox(&mut client, 1_000);
        sleeper.send("DEBUG SLEEP 2");
        pause(100);
        others.iter_mut().for_each(|other| other.send("PING"));
        reader.send(&format!("DLOCK.GRANTS short {cursor} TTL 60000 {options}"));
        others.iter_mut().for_each(|other| _ = other.next_reply());
        sleeper.next_reply();
        if options.is_empty() {
            assert_eq!(Delivery::parse(&reader.next_reply()).answers, []);
        } else {
            wait_for("the reader to block", || {
                client.server_info("clients", "blocked_clients") == "1"
            });
        }
        assert_eq!(client.queue("door"), ["bob"]);
        assert_eq!(client.stat("dlock_inboxes"), 2);
    }
}

/// As after a sleep of the whole machine.
#[test]
fn reader_that_called_while_server_was_stopped_is_served_before_end() {
    let (server, mut client, _inbox) = held_with_inbox();
    let mut reader = Waiter::connect(&server);
    let cursor = bob_in_short_inbox(&mut client, 1_000);
    server.stop();
    reader.send(&format!("DLOCK.GRANTS short {cursor} TTL 60000"));
    pause(1_500);
    server.resume();
    assert_eq!(Delivery::parse(&reader.next_reply()).answers, []);
    assert_eq!(client.queue("door"), ["bob"]);
}

#[test]
fn hundred_dead_inboxes_delay_next_waiter_by_one_ttl() {
    const DEAD: usize = 100;
    let (_server, mut client, mut inbox) = held_with_inbox();
    let mut commands = Vec::new();
    for n in 0..DEAD {
        commands.push(format!("DLOCK.GRANTS dead{n} 0 TTL 1000"));
        commands.push(format!(
            "DLOCK.ACQUIRE door owner{n} 60000 QUEUE dead{n} 0 REQID r1"
        ));
    }
    commands.push("DLOCK.ACQUIRE door carol 60000 QUEUE inbox 0 REQID r1".into());
    commands.push("DLOCK.RELEASE door alice".into());
    let start = Instant::now();
    client.batch(&commands);
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door carol"]);
    assert!(start.elapsed() >= Duration::from_millis(1_000));
    assert_elapsed_at_most(Duration::from_millis(1_000), start);
    client.wait_for_inboxes(1);
    assert_eq!(client.stat("dlock_inboxes_ended"), DEAD as i64);
    let rolled_back = client.stat("dlock_grants_rolled_back");
    assert!((1..=DEAD as i64).contains(&rolled_back), "{rolled_back}");
}

#[test]
fn waiters_of_ended_inbox_leave_in_slices() {
    // A busy machine may not let the observer in.
    let is_sliced = (0..4).any(|_| steps_of_end() > 1);
    assert!(is_sliced, "all left in one piece");
}

/// The number of times that another client sees fewer waiters than before.
fn steps_of_end() -> usize {
    const WAITERS: usize = 30_000;
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.config_set("dlock.max-waiters-per-lock", &WAITERS.to_string());
    enqueue_many(&mut client, "door", WAITERS, "");
    inbox.send("TTL 0");
    let (mut steps, mut seen) = (0, WAITERS as i64);
    while seen > 0 {
        let waiters = client.stat("dlock_waiters");
        steps += usize::from(waiters < seen);
        seen = waiters;
    }
    client.wait_for_queue("door", 0);
    steps
}
