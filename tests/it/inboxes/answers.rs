//! The answers in an inbox: exactly one for each queued request.

use std::time::{Duration, Instant};

use dlock_testkit::{Outcome, pause, wait_for};

use super::held_with_inbox;

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
