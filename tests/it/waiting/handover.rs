//! A blocked ACQUIRE ends by a release, by the end of a lease, or by its timeout.

use std::time::{Duration, Instant};

use dlock_testkit::{assert_elapsed_at_most, reply_bytes, start, start_with, wait_for};

/// Documented: waiters are woken within this time after a lease expires, at `hz 10`.
const WOKEN_WITHIN: Duration = Duration::from_millis(100);

#[test]
fn lease_end_hands_over_to_waiter() {
    let (server, mut client) = start();
    let start = Instant::now();
    let (mut bob, held) = server.waiter_behind(&["door alice 600"], "door bob 60000 BLOCK 0");
    let grant = bob.granted();
    let lease = Duration::from_millis(600);
    assert!(start.elapsed() >= lease, "alice held it until then");
    assert_elapsed_at_most(lease + WOKEN_WITHIN, start);
    assert!(grant.fence > held[0].fence);
    client.assert_sole_holder("door", "bob", grant.fence, 1);
}

#[test]
fn blocked_replies_have_resp2_and_resp3_shapes() {
    let (server, mut client) = start();
    for (resp, null) in [(2, "*-1\r\n"), (3, "_\r\n")] {
        client.acquire("door alice 60000");
        let reply = reply_bytes(&server, resp, "DLOCK.ACQUIRE door bob 60000 BLOCK 20");
        assert_eq!(reply, null);
        client.release("door alice");
        client.acquire("door alice 50");
        let granted = reply_bytes(&server, resp, "DLOCK.ACQUIRE door bob 60000 BLOCK 0");
        let parts: Vec<&str> = granted.split("\r\n").collect();
        assert!(
            matches!(parts[..], ["*4", _, ":1", ":60000", waited, ""] if waited.starts_with(':')),
            "{granted:?}"
        );
        client.release("door bob");
    }
}

#[test]
fn timeout_is_kept_at_hz_1() {
    let (server, mut client) = start_with("hz 1");
    client.acquire("door alice 60000");
    let wait = || {
        let start = Instant::now();
        server.send_acquire("door bob 60000 BLOCK 300").assert_null();
        assert!(start.elapsed() >= Duration::from_millis(300));
        start.elapsed()
    };
    // If the ticks, one a second, ended the waits, each but the first would take a second.
    wait();
    wait_for("a timeout between two ticks", || {
        wait() < Duration::from_millis(900)
    });
}
