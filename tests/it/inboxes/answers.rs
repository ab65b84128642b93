//! The answers in an inbox: exactly one for each queued request.

use std::time::{Duration, Instant};

use dlock_testkit::{Outcome, pause, wait_for};
use redis::Value;

use super::{held_with_inbox, held_with_inbox_and, shown};

#[test]
fn granted_answer_has_fence_holds_lease_and_queued_time() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    let sent = Instant::now();
    client.enqueue("door bob 50000 QUEUE inbox 0 REQID r1");
    let queued = Instant::now();
    pause(200);
    let waited = queued.elapsed();
    client.release("door alice");
    let answer = inbox.take(1).remove(0);
    let most = sent.elapsed().as_millis();
    assert_eq!(answer.shown(), "granted r1 door bob");
    let grant = answer.grant();
    client.assert_sole_holder("door", "bob", grant.fence, 1);
    assert_eq!(grant.holds, 1);
    assert!((1..=50_000).contains(&grant.lease_ms), "{grant:?}");
    let queued_ms = u128::from(grant.queued_ms);
    assert!((waited.as_millis()..=most).contains(&queued_ms), "{grant:?}");
}

#[test]
fn lease_begins_at_grant_and_runs_while_answer_is_unread() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    pause(100);
    client.release("door alice");
    let granted = Instant::now();
    pause(400);
    let unread = granted.elapsed();
    let grant = inbox.granted();
    assert!(
        u128::from(grant.lease_ms) + unread.as_millis() <= 60_000,
        "{grant:?}"
    );
    let left = client.lock("door").holder("bob").lease_ms;
    assert!(left <= grant.lease_ms, "{left} {grant:?}");
    let spent = Duration::from_millis(60_000 - grant.lease_ms);
    assert!(spent <= granted.elapsed() + Duration::from_secs(1), "{spent:?}");
}

/// `t + waited-ms + lease-ms`, with t read before the call was sent, is never after the end of the lease.
#[test]
fn local_deadline_is_before_end_of_lease() {
    for parked in [true, false] {
        let (_server, mut client, mut inbox) = held_with_inbox();
        client.enqueue("door bob 3000 QUEUE inbox 0 REQID r1");
        let mut called = Instant::now();
        if parked {
            inbox.block(&mut client);
        }
        pause(300);
        client.release("door alice");
        let granted = Instant::now();
        if !parked {
            pause(300);
            called = Instant::now();
            inbox.send("");
        }
        let delivery = inbox.receive();
        let grant = delivery.answers[0].grant();
        let deadline = called + Duration::from_millis(delivery.waited_ms + grant.lease_ms);
        // The lease began before `granted` was read, so this is no earlier than its end.
        let end = granted + Duration::from_millis(3_000);
        assert!(deadline <= end, "parked: {parked}");
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(left <= Duration::from_millis(3_000));
    }
}

#[test]
fn lease_that_expired_unread_is_told_as_0() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 300 QUEUE inbox 0 REQID r1");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    client.release("door alice");
    let fence = carol.granted().fence;
    let grant = inbox.granted();
    assert_eq!(grant.lease_ms, 0);
    assert!(grant.fence < fence);
    client.assert_sole_holder("door", "carol", fence, 1);
}

#[test]
fn released_unread_grant_is_still_answered_once() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.batch(&["DLOCK.RELEASE door alice", "DLOCK.RELEASE door bob REQID r1"]);
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
    assert!(!client.exists("door"));
    // As the process does, which does not wait any more.
    assert_eq!(client.release("door bob REQID r1"), 0);
    inbox.assert_empty();
}

#[test]
fn timed_out_request_is_answered_timeout() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    let start = Instant::now();
    client.enqueue("door bob 60000 QUEUE inbox 300 REQID r1");
    assert_eq!(shown(&inbox.take(1)), ["timeout r1 door bob"]);
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(client.waiting("door"), 0);
    assert_eq!(client.stat("dlock_wait_timeouts"), 1);
    inbox.assert_empty();
}

#[test]
fn many_requests_time_out_in_order_of_their_timeouts() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.batch(&[
        "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 900 REQID r1",
        "DLOCK.ACQUIRE door carol 60000 QUEUE inbox 300 REQID r2",
        "DLOCK.ACQUIRE door dave 60000 QUEUE inbox 600 REQID r3",
    ]);
    let answers = shown(&inbox.take(3));
    let expected = [
        "timeout r2 door carol",
        "timeout r3 door dave",
        "timeout r1 door bob",
    ];
    assert_eq!(answers, expected);
}

#[test]
fn timeout_of_first_waiter_serves_next() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.acquire("hall alice 60000 SHARED");
    client.enqueue("hall writer 60000 QUEUE inbox 200 REQID r1");
    client.enqueue("hall reader 60000 SHARED QUEUE inbox 0 REQID r2");
    let answers = shown(&inbox.take(2));
    assert_eq!(answers, ["timeout r1 hall writer", "granted r2 hall reader"]);
}

#[test]
fn withdrawn_request_is_answered_withdrawn_whoever_withdraws_it() {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("door carol 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(server.client().release("door bob REQID r1"), 0);
    assert_eq!(shown(&inbox.take(1)), ["withdrawn r1 door bob"]);
    assert_eq!(client.release("door bob REQID r1"), 0, "it can be repeated");
    inbox.assert_empty();
    assert_eq!(client.queue("door"), ["carol"]);
    client.acquire("hall alice 60000 SHARED");
    client.enqueue("hall writer 60000 QUEUE inbox 0 REQID r1");
    client.enqueue("hall reader 60000 SHARED QUEUE inbox 0 REQID r2");
    client.release("hall writer REQID r1");
    let mut answers = shown(&inbox.take(2));
    answers.sort();
    assert_eq!(answers, ["granted r2 hall reader", "withdrawn r1 hall writer"]);
}

#[test]
fn refused_release_withdraws_nothing() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.assert_error("NOTOWNER", "DLOCK.RELEASE door bob REQID r1 FENCE 1");
    client.release("door carol REQID r1");
    client.assert_error("NOTOWNER", "DLOCK.RELEASE door bob");
    inbox.assert_empty();
    assert_eq!(client.queue("door"), ["bob"]);
}

#[test]
fn other_type_under_key_is_answered_wrongtype() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.ok("SET door text");
    let answer = inbox.take(1).remove(0);
    assert_eq!(answer.shown(), "error r1 door bob WRONGTYPE");
    assert!(answer.error().len() > "WRONGTYPE ".len(), "{answer:?}");
    assert_eq!(client.stat("dlock_waiters"), 0);
}

#[test]
fn evicting_policy_is_answered_when_turn_comes() {
    let (_server, mut client, mut inbox) = held_with_inbox_and("maxmemory 1gb");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.config_set("maxmemory-policy", "allkeys-lru");
    client.assert_error(
        "EVICTABLE",
        "DLOCK.ACQUIRE door carol 60000 QUEUE inbox 0 REQID r1",
    );
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["error r1 door bob EVICTABLE"]);
    assert!(!client.exists("door"));
}

#[test]
fn broken_lock_is_granted_to_queued_request() {
    let breaks = [
        "DEL door",
        "UNLINK door",
        "RENAME door away",
        "MOVE door 1",
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL ASYNC",
        "SWAPDB 0 1",
        "PEXPIRE door 20",
    ];
    for command in breaks {
        let (_server, mut client, mut inbox) = held_with_inbox();
        let fence = client.lock("door").holder("alice").fence;
        client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
        client.ask::<Value>(command);
        let answer = inbox.take(1).remove(0);
        assert_eq!(answer.shown(), "granted r1 door bob", "{command}");
        let grant = answer.grant();
        assert!(grant.fence > fence, "{command}");
        client.assert_sole_holder("door", "bob", grant.fence, 1);
    }
}

#[test]
fn answer_names_key_of_its_request() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    // The same owner and request id for several locks.
    for key in ["a", "b", "c"] {
        client.acquire(&format!("{key} alice 60000"));
        client.enqueue(&format!("{key} bob 60000 QUEUE inbox 0 REQID r1"));
    }
    for key in ["b", "c", "a"] {
        client.release(&format!("{key} alice"));
        assert_eq!(shown(&inbox.take(1)), [format!("granted r1 {key} bob")]);
    }
}

#[test]
fn each_request_has_exactly_one_answer() {
    const ROUNDS: usize = 40;
    let (_server, mut client, mut inbox) = held_with_inbox();
    let mut outcomes = [0; 3];
    for n in 0..ROUNDS {
        client.enqueue(&format!("door bob 60000 QUEUE inbox {} REQID r{n}", 5 + n % 7));
        pause(n as u64 % 11);
        client.batch(&[
            format!("DLOCK.RELEASE door bob REQID r{n}"),
            "DLOCK.RELEASE door alice".into(),
            "DLOCK.ACQUIRE door alice 60000".into(),
        ]);
        let answer = inbox.take(1).remove(0);
        assert_eq!(answer.id, format!("r{n}"));
        outcomes[match answer.outcome {
            Outcome::Granted(_) => 0,
            Outcome::Timeout => 1,
            Outcome::Withdrawn => 2,
            Outcome::Error(error) => panic!("{error}"),
        }] += 1;
    }
    inbox.assert_empty();
    assert_eq!(outcomes.iter().sum::<usize>(), ROUNDS);
    assert!(outcomes[2] > 0, "{outcomes:?}");
    wait_for("no waiters", || client.stat("dlock_waiters") == 0);
}
