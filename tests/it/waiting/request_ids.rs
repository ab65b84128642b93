//! Waiting requests with a request id, while grants are on their way and time passes. More of it is in `tests/rules`.

use dlock_testkit::wait_for;

use crate::fixtures::held_by_alice;

#[test]
fn release_by_reqid_takes_back_grant_in_flight() {
    let (server, mut client) = held_by_alice();
    let mut bob = server.waiter("door bob 60000 BLOCK 0 REQID r1");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    client.batch(&["DLOCK.RELEASE door alice", "DLOCK.RELEASE door bob REQID r1"]);
    bob.granted();
    carol.granted();
    assert_eq!(client.lock("door").owners(), ["carol"]);
}

#[test]
fn repeated_reqid_restarts_timeout_and_wait_time() {
    let (server, mut client) = held_by_alice();
    let _lost = server.waiter("door bob 60000 BLOCK 3000 REQID r1");
    wait_for("a while in the queue", || {
        client.waiters("door")[0].waited_ms >= 200
    });
    let start = std::time::Instant::now();
    let mut bob = server.send_acquire("door bob 60000 BLOCK 3000 REQID r1");
    bob.assert_null();
    let is_expected = start.elapsed().as_millis() >= 3000;
    assert!(is_expected, "the old timeout does not count");
    let _lost = server.waiter("door bob 60000 BLOCK 0 REQID r2");
    wait_for("a while in the queue", || {
        client.waiters("door")[0].waited_ms >= 200
    });
    let start = std::time::Instant::now();
    let mut bob = server.send_acquire("door bob 60000 BLOCK 60000 REQID r2");
    wait_for("the replacement", || {
        client.waiters("door")[0].timeout_ms == 60_000
    });
    client.release("door alice");
    assert!(u128::from(bob.granted().waited_ms) <= start.elapsed().as_millis());
}
