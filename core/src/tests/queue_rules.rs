//! The contract of waiters by example.

use crate::effects::Effects;
use crate::lock::Lock;
use crate::testing::Answer::{self, NotGranted};
use crate::testing::Server;
use crate::transition::ServerState;
use crate::wire::{Error, Event, Holds, Release};

#[test]
fn waiting_holder_reenters_when_grace_ends() {
    let mut server = Server::with(&["a"]);
    server.granted("ACQUIRE a alice 60000 SHARED");
    server.grace(10);
    let again = server.waits("ACQUIRE a alice 60000 SHARED BLOCK 0");
    server.pass(10_000);
    server.granted("ACQUIRE a bob 60000 SHARED");
    assert_eq!(server.owners("a"), ["alice", "bob"]);
    assert!(server.has_been_granted(again));
}

/// The failed server may have granted the lock to another owner since, and the grant may be lost.
#[test]
fn lease_expired_before_grace_stays_expired() {
    let mut server = Server::with(&["a"]);
    let fence = server.granted("ACQUIRE a alice 10").fence;
    server.pass(10_000);
    server.grace(30);
    assert_eq!(server.call("EXTEND a alice 10"), Err(Error::Grace(30)));
    assert_eq!(
        server.call(&format!("EXTEND a alice 10 FENCE {fence}")),
        Err(Error::NotHeld)
    );
}

#[test]
fn change_at_end_of_grace_is_applied_by_replica() {
    let mut server = Server::with(&["a"]);
    server.granted("ACQUIRE a alice 60000 SHARED");
    let mut replica = server.lock("a").clone();
    server.grace(10);
    server.waits("ACQUIRE a alice 60000 SHARED BLOCK 0");
    server.pass(10_000);
    server.granted("ACQUIRE a bob 60000 SHARED");
    let (mut follower, mut effects) = (ServerState::default(), Effects::default());
    let applied = follower.apply(
        server.clock().now,
        &mut replica,
        server.effects.change().unwrap(),
        &mut effects,
    );
    assert_eq!(applied, Ok(()));
    assert_eq!(effects.events, [Event::Acquired]);
}

#[test]
fn mutex_holder_reenters_at_end_of_grace_before_others() {
    let mut server = Server::with(&["a"]);
    server.granted("ACQUIRE a alice 60000");
    server.grace(10);
    let again = server.waits("ACQUIRE a alice 60000 BLOCK 0");
    server.pass(10_000);
    assert_eq!(server.call("ACQUIRE a bob 5"), Ok(NotGranted));
    server.process_due();
    assert!(server.has_been_granted(again));
}

#[test]
fn owner_with_64_waiting_requests_is_refused_another() {
    let mut server = Server::with(&["a", "b"]);
    server.granted("ACQUIRE a alice 60000");
    server.granted("ACQUIRE b alice 60000");
    for n in 0..64 {
        server.waits(&format!("ACQUIRE a bob 60000 BLOCK 0 REQID r{n}"));
    }
    let one_more = "ACQUIRE a bob 60000 BLOCK 0 REQID r64";
    assert_eq!(server.call(one_more), Err(Error::TooManyWaiting(64)));
    // Repeated requests, other owners and other locks may wait.
    server.waits("ACQUIRE a bob 60000 BLOCK 0 REQID r7");
    server.waits("ACQUIRE a carol 60000 BLOCK 0 REQID r64");
    server.waits("ACQUIRE b bob 60000 BLOCK 0 REQID r64");
}

#[test]
fn lock_with_as_many_holders_as_the_setting_allows_is_not_granted() {
    let mut server = Server::with(&["a"]);
    server.set_policy(|policy| policy.max_holders = Some(2));
    server.granted("ACQUIRE a alice 60000 SHARED");
    server.granted("ACQUIRE a bob 60000 SHARED");
    assert_eq!(
        server.call("ACQUIRE a carol 60000 SHARED"),
        Ok(Answer::NotGranted)
    );
    server.granted("ACQUIRE a bob 60000 SHARED");
    server.set_policy(|policy| policy.max_holders = Some(3));
    server.granted("ACQUIRE a carol 60000 SHARED");
}

#[test]
fn waiter_that_restore_made_a_holder_reenters() {
    let mut server = Server::with(&["a", "b"]);
    server.granted("ACQUIRE a bob 60000");
    server.granted("ACQUIRE b alice 60000 SHARED");
    server.waits("ACQUIRE a alice 60000 SHARED BLOCK 0");
    server.replace(0, server.lock("b").clone());
    assert!(server.call("EXTEND a alice 60000").is_ok());
    assert_eq!(server.owners("a"), ["alice"]);
}

#[test]
fn rejected_release_after_del_grants_queue() {
    let mut server = Server::with(&["a"]);
    server.granted("ACQUIRE a alice 60000");
    let bob = server.waits("ACQUIRE a bob 60000 BLOCK 0");
    server.replace(0, Lock::default());
    assert_eq!(server.call("RELEASE a alice"), Err(Error::NotHeld));
    server.process_due();
    assert!(server.has_been_granted(bob), "{:?}", server.next_wakeup());
}

#[test]
fn rejected_extend_after_waiter_left_grants_queue() {
    let mut server = Server::with(&["a"]);
    server.granted("ACQUIRE a alice 60000 SHARED");
    let writer = server.waits("ACQUIRE a bob 60000 BLOCK 0");
    let reader = server.waits("ACQUIRE a carol 60000 SHARED BLOCK 0");
    server.disconnect(writer);
    assert_eq!(server.call("EXTEND a dave 5"), Err(Error::NotOwner));
    server.process_due();
    assert!(server.has_been_granted(reader), "{:?}", server.next_wakeup());
}

#[test]
fn expired_holder_is_no_deadlock() {
    let mut server = Server::with(&["a", "b"]);
    server.granted("ACQUIRE a alice 10 LIMIT 2");
    server.granted("ACQUIRE a dave 60000 LIMIT 2");
    server.granted("ACQUIRE b bob 60000");
    server.waits("ACQUIRE b alice 60000 BLOCK 0");
    server.pass(10_000);
    server.waits("ACQUIRE a bob 60000 BLOCK 0");
}

#[test]
fn waiting_for_two_free_locks_in_grace_is_no_deadlock() {
    let mut server = Server::with(&["a", "b"]);
    server.grace(10);
    server.waits("ACQUIRE a alice 60000 BLOCK 0");
    server.waits("ACQUIRE b alice 60000 BLOCK 0");
}

#[test]
fn waiting_twice_for_a_free_lock_in_grace_is_no_deadlock() {
    let mut server = Server::with(&["a"]);
    server.grace(10);
    server.waits("ACQUIRE a alice 60000 BLOCK 0");
    server.waits("ACQUIRE a alice 60000 BLOCK 0");
}

#[test]
fn repeated_reqid_keeps_its_queue_position() {
    let mut server = Server::with(&["a"]);
    server.granted("ACQUIRE a alice 60000");
    for id in ["r1", "r2", "r1"] {
        server.waits(&format!("ACQUIRE a bob 60000 BLOCK 0 REQID {id}"));
    }
    assert!(server.call("RELEASE a alice").is_ok());
    assert_eq!(server.view(0).holders[0].ids, [b"r1", b"r2"]);
}

/// Alice acquires `a` with request id r1. The key is dumped and deleted, and Bob acquires it. Alice never got the
/// reply, retries, and waits. Then the key is restored.
#[test]
fn waiting_reqid_restored_as_hold_counts_once() {
    let mut server = Server::with(&["a"]);
    server.granted("ACQUIRE a alice 60000 REQID r1");
    let dumped = server.lock("a").clone();
    server.replace(0, Lock::default());
    server.granted("ACQUIRE a bob 60000");
    let again = server.waits("ACQUIRE a alice 60000 BLOCK 0 REQID r1");
    server.replace(0, dumped);
    server.process_due();
    assert!(server.has_been_granted(again));
    assert_eq!(server.lock("a").holders()[0].holds(), 1);
}

#[test]
fn waiter_lease_starts_at_grant_with_its_own_waited_ms() {
    let mut server = Server::with(&["a"]);
    server.granted("ACQUIRE a alice 100");
    server.pass(1_000);
    server.waits("ACQUIRE a bob 30 BLOCK 0");
    server.pass(60_000);
    assert!(server.call("RELEASE a alice").is_ok());
    let [(_, Ok(Answer::Granted(bob)))] = server.replies.as_slice() else {
        panic!("{:?}", server.replies)
    };
    assert_eq!((bob.lease_ms, bob.waited_ms, bob.holds), (30, 60, 1));
}

fn roll_back(server: &mut Server, owner: &str, fence: u64, holds: Holds<'_>) -> bool {
    let (owner, fence) = (owner.as_bytes(), Some(fence));
    server.rollback_grant(0, &Release { owner, fence, holds })
}

/// A client disconnects before its grant reaches it. Then the key is deleted.
#[test]
fn rollback_of_missing_grant_grants_queue() {
    let mut server = Server::with(&["a"]);
    server.granted("ACQUIRE a alice 60000");
    server.waits("ACQUIRE a bob 60000 BLOCK 0");
    let carol = server.waits("ACQUIRE a carol 60000 BLOCK 0");
    assert!(server.call("RELEASE a alice").is_ok());
    let fence = server.lock("a").holders()[0].fence();
    server.replace(0, Lock::default());
    roll_back(&mut server, "bob", fence, Holds::One);
    server.process_due();
    assert!(server.has_been_granted(carol));
}

/// In a grace period a holder waits to re-enter. Its undelivered grant with the same request id was already
/// released.
#[test]
fn rollback_of_missing_grant_keeps_waiting_reqid() {
    let mut server = Server::with(&["a"]);
    let fence = server.granted("ACQUIRE a alice 60000").fence;
    server.grace(10);
    let again = server.waits("ACQUIRE a alice 60000 BLOCK 0 REQID r1");
    assert!(!roll_back(&mut server, "alice", fence, Holds::ById(b"r1")));
    server.pass(10_000);
    server.process_due();
    assert!(server.has_been_granted(again));
}

/// The undelivered grant was already released. Its owner has another hold by now.
#[test]
fn rollback_of_missing_anonymous_grant_keeps_hold_of_reqid() {
    let mut server = Server::with(&["a"]);
    let fence = server.granted("ACQUIRE a alice 60000 REQID r1").fence;
    assert!(!roll_back(&mut server, "alice", fence, Holds::One));
    assert_eq!(server.owners("a"), ["alice"]);
}
