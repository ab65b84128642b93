//! The answers in an inbox. More of it is in `tests/rules`.

use std::time::{Duration, Instant};

use dlock_testkit::pause;

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
