//! A blocked ACQUIRE ends by a release, by the end of a lease, or by its timeout.

use std::time::{Duration, Instant};

use dlock_testkit::{assert_elapsed_at_most, pause, reply_bytes, start};

use crate::fixtures::held_by_alice;

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
fn last_lease_end_hands_over_to_waiter() {
    let (server, mut client) = start();
    let start = Instant::now();
    let holders = ["door alice 50 SHARED", "door carol 700 SHARED"];
    let (mut bob, _) = server.waiter_behind(&holders, "door bob 60000 BLOCK 0");
    bob.granted();
    assert!(start.elapsed() >= Duration::from_millis(700));
    assert_eq!(client.lock("door").owners(), ["bob"]);
}

#[test]
fn extended_lease_keeps_waiter_waiting() {
    let (server, mut client) = start();
    let start = Instant::now();
    let (mut bob, _) = server.waiter_behind(&["door alice 2000"], "door bob 60000 BLOCK 0");
    client.extend("door alice 2500");
    bob.granted();
    assert!(start.elapsed() >= Duration::from_millis(2500));
}

#[test]
fn timeout_replies_null_and_leaves_no_state() {
    let (server, mut client) = start();
    let fence = client.acquire("door alice 60000").fence;
    let start = Instant::now();
    let mut bob = server.send_acquire("door bob 60000 BLOCK 150");
    bob.assert_null();
    assert!(start.elapsed() >= Duration::from_millis(150));
    assert_elapsed_at_most(Duration::from_millis(250), start);
    assert_eq!(client.waiting("door"), 0);
    client.assert_sole_holder("door", "alice", fence, 1);
    client.release("door alice");
    assert!(!client.exists("door"), "bob does not get it afterwards");
}

#[test]
fn longest_timeout_waits() {
    let (server, mut client) = held_by_alice();
    let longest: i64 = 1 << 52;
    let mut bob = server.waiter(&format!("door bob 60000 BLOCK {longest}"));
    assert_eq!(client.waiters("door")[0].timeout_ms, longest);
    pause(300);
    bob.assert_waiting();
    client.release("door alice");
    bob.granted();
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
fn pipelined_commands_wait_behind_blocked_one() {
    let (server, mut client) = held_by_alice();
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    bob.send("ECHO later");
    // The server has read it once it has replied to a later request.
    client.ask::<String>("PING");
    bob.assert_waiting();
    client.release("door alice");
    let is_expected = matches!(bob.ask("ECHO last"), redis::Value::Array(_));
    assert!(is_expected, "the grant");
}

#[test]
fn waiter_key_owner_and_reqid_are_binary_safe() {
    let (server, mut client) = start();
    let (key, owner, id): (&[u8], &[u8], &[u8]) = (b"door\r\n\0\xff", b"\0\xfe \"", b"\x80\n");
    client.ask_args::<redis::Value>(&[b"DLOCK.ACQUIRE", key, b"alice", b"100"]);
    let mut bob = server.client();
    bob.ask_args::<(u64, u64, u64, u64)>(&[
        b"DLOCK.ACQUIRE",
        key,
        owner,
        b"60000",
        b"BLOCK",
        b"0",
        b"REQID",
        id,
    ]);
    assert_eq!(client.ask_args::<Vec<u8>>(&[b"DLOCK.OWNER", key]), owner);
    let reply = client.ask_args::<i64>(&[b"DLOCK.RELEASE", key, owner, b"REQID", id]);
    assert_eq!(reply, 0);
}
