//! What the transcripts of `tests/rules` cannot show of locks and queues: the ends of ranges, settings, and what is not
//! visible from outside.

use crate::fence::MAX_FENCE;
use crate::lock::{Holder, Lock, MAX_REQUEST_IDS};
use crate::names::Limit;
use crate::testing::Answer::{Holds, NotGranted};
use crate::testing::Server;
use crate::wire::{self, Error, Release};

/// A server with the free lock `a`.
fn server() -> Server {
    Server::with(&["a"])
}

#[test]
fn acquire_with_65th_reqid_is_rejected() {
    let mut server = server();
    for id in 0..MAX_REQUEST_IDS {
        server.granted(&format!("ACQUIRE a alice 10 REQID {id}"));
    }
    let last = "ACQUIRE a alice 10 REQID 64";
    assert_eq!(server.call(last), Err(Error::TooManyRequestIds(64)));
    assert_eq!(server.granted("ACQUIRE a alice 10 REQID 0").holds, 64);
    assert_eq!(server.granted("ACQUIRE a alice 10").holds, 65);
    assert_eq!(server.call("RELEASE a alice REQID 3"), Ok(Holds(64)));
    assert_eq!(server.granted(last).holds, 65);
}

#[test]
fn reentry_at_largest_hold_count_is_rejected() {
    let mut server = server();
    let (now, fence) = (server.clock().now, server.state().fences.known());
    let mut alice = Holder::new(b"alice", Limit::MUTEX, fence, now, now.after_ms(10));
    alice.add_anonymous(u32::MAX).unwrap();
    let mut lock = Lock::default();
    lock.push(alice);
    server.replace(0, lock);
    assert_eq!(server.call("ACQUIRE a alice 99"), Err(Error::TooManyHolds));
    assert_eq!(server.call("RELEASE a alice"), Ok(Holds(u64::from(u32::MAX) - 1)));
}

#[test]
fn acquire_with_exhausted_fences_is_rejected() {
    let mut server = server();
    server.state_mut().fences.observe(MAX_FENCE - 1);
    assert_eq!(server.granted("ACQUIRE a alice 10 SHARED").fence, MAX_FENCE);
    assert_eq!(server.call("ACQUIRE a bob 10 SHARED"), Err(Error::FencesUsedUp));
    assert_eq!(server.granted("ACQUIRE a alice 10 SHARED").holds, 2);
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
    let mut server = server();
    server.set_policy(|policy| policy.max_holders = Some(2));
    server.granted("ACQUIRE a alice 60000 SHARED");
    server.granted("ACQUIRE a bob 60000 SHARED");
    assert_eq!(server.call("ACQUIRE a carol 60000 SHARED"), Ok(NotGranted));
    server.granted("ACQUIRE a bob 60000 SHARED");
    server.set_policy(|policy| policy.max_holders = Some(3));
    server.granted("ACQUIRE a carol 60000 SHARED");
}

/// It waits for a lock that RESTORE then puts under the key, with a hold of the same request.
#[test]
fn waiting_reqid_restored_as_hold_counts_once() {
    let mut server = server();
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

fn roll_back(server: &mut Server, owner: &str, fence: u64, holds: wire::Holds<'_>) -> bool {
    let (owner, fence) = (owner.as_bytes(), Some(fence));
    server.rollback_grant(0, &Release { owner, fence, holds })
}

/// A client disconnects before its grant reaches it. Then the key is deleted.
#[test]
fn rollback_of_missing_grant_grants_queue() {
    let mut server = server();
    server.granted("ACQUIRE a alice 60000");
    server.waits("ACQUIRE a bob 60000 BLOCK 0");
    let carol = server.waits("ACQUIRE a carol 60000 BLOCK 0");
    assert!(server.call("RELEASE a alice").is_ok());
    let fence = server.lock("a").holders()[0].fence();
    server.replace(0, Lock::default());
    roll_back(&mut server, "bob", fence, wire::Holds::One);
    server.process_due();
    assert!(server.has_been_granted(carol));
}

/// In a grace period a holder waits to re-enter. Its undelivered grant with the same request id was already
/// released.
#[test]
fn rollback_of_missing_grant_keeps_waiting_reqid() {
    let mut server = server();
    let fence = server.granted("ACQUIRE a alice 60000").fence;
    server.grace(10);
    let again = server.waits("ACQUIRE a alice 60000 BLOCK 0 REQID r1");
    assert!(!roll_back(&mut server, "alice", fence, wire::Holds::ById(b"r1")));
    server.pass(10_000);
    server.process_due();
    assert!(server.has_been_granted(again));
}

/// The undelivered grant was already released. Its owner has another hold by now.
#[test]
fn rollback_of_missing_anonymous_grant_keeps_hold_of_reqid() {
    let mut server = server();
    let fence = server.granted("ACQUIRE a alice 60000 REQID r1").fence;
    assert!(!roll_back(&mut server, "alice", fence, wire::Holds::One));
    assert_eq!(server.owners("a"), ["alice"]);
}
