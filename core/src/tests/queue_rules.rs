//! The contract of waiters by example.

use super::dsl::{AN_HOUR, ask, granted, limited, named, shared, wait, waits};
use super::subject::{Outcome, Server};
use crate::effects::{Answer, Effects};
use crate::engine::Engine;
use crate::error::Error;
use crate::limit::Limit;
use crate::name::LockRef;
use crate::request::Holds;
use crate::ticket::Ticket;

fn has_been_granted(server: &Server, ticket: Ticket) -> bool {
    let is_grant = |(to, answer): &(Ticket, Answer)| *to == ticket && matches!(answer, Answer::Granted(_));
    server.answers.iter().any(is_grant)
}

fn holders(server: &Server, key: &str) -> Vec<String> {
    let name = |owner: &[u8]| String::from_utf8_lossy(owner).into_owned();
    server
        .lock(key)
        .holders()
        .iter()
        .map(|holder| name(holder.owner()))
        .collect()
}

#[test]
fn waiting_holder_reenters_when_grace_ends() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &shared(ask("alice", AN_HOUR)));
    server.grace(10);
    let again = waits(&mut server, "a", &shared(wait("alice", AN_HOUR)));
    server.pass_ms(10);
    granted(&mut server, "a", &shared(ask("bob", AN_HOUR)));
    assert_eq!(holders(&server, "a"), ["alice", "bob"]);
    assert!(has_been_granted(&server, again));
}

/// The failed server may have granted the lock to another owner since, and the grant may be lost.
#[test]
fn lease_expired_before_grace_stays_expired() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &ask("alice", 10));
    server.pass_ms(10);
    server.grace(30);
    assert_eq!(server.extend("a", "alice", 10, None), Err(Error::Grace(30)));
    let fence = server.lock("a").holders()[0].fence();
    assert_eq!(server.extend("a", "alice", 10, Some(fence)), Err(Error::NotHeld));
}

#[test]
fn change_at_end_of_grace_is_applied_by_replica() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &shared(ask("alice", AN_HOUR)));
    let mut replica = server.lock("a").clone();
    server.grace(10);
    waits(&mut server, "a", &shared(wait("alice", AN_HOUR)));
    server.pass_ms(10);
    server
        .acquire("a", &shared(ask("bob", AN_HOUR)))
        .expect("granted");
    let change = server.effects.change().to_vec();
    let applied = Engine::starting()
        .begin(
            LockRef::new(0, b"a"),
            &mut replica,
            &server.cx,
            &mut Effects::default(),
        )
        .apply(&change);
    assert_eq!(applied, Ok(true));
}

#[test]
fn mutex_holder_reenters_at_end_of_grace_before_others() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    server.grace(10);
    let again = waits(&mut server, "a", &wait("alice", AN_HOUR));
    server.pass_ms(10);
    assert_eq!(server.acquire("a", &ask("bob", 5)), Ok(Outcome::NotGranted));
    server.process_due();
    assert!(has_been_granted(&server, again));
}

#[test]
fn waiter_that_restore_made_a_holder_reenters() {
    let mut server = Server::with(&["a", "b"]);
    granted(&mut server, "a", &ask("bob", AN_HOUR));
    granted(&mut server, "b", &shared(ask("alice", AN_HOUR)));
    waits(&mut server, "a", &shared(wait("alice", AN_HOUR)));
    let of_alice = server.lock("b").clone();
    server.replace("a", of_alice);
    server
        .extend("a", "alice", AN_HOUR, None)
        .expect("alice is a holder now");
    assert_eq!(holders(&server, "a"), ["alice"]);
}

#[test]
fn rejected_release_after_del_grants_queue() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    let bob = waits(&mut server, "a", &wait("bob", AN_HOUR));
    server.replace("a", Default::default());
    assert_eq!(server.release("a", "alice", Holds::One), Err(Error::NotHeld));
    server.process_due();
    assert!(
        has_been_granted(&server, bob),
        "{:?}",
        server.engine.wait_table.next_wakeup()
    );
}

#[test]
fn rejected_extend_after_waiter_left_grants_queue() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &shared(ask("alice", AN_HOUR)));
    let writer = waits(&mut server, "a", &wait("bob", AN_HOUR));
    let reader = waits(&mut server, "a", &shared(wait("carol", AN_HOUR)));
    server.leave("a", writer);
    assert_eq!(server.extend("a", "dave", 5, None), Err(Error::NotOwner));
    server.process_due();
    assert!(
        has_been_granted(&server, reader),
        "{:?}",
        server.engine.wait_table.next_wakeup()
    );
}

#[test]
fn expired_holder_is_no_deadlock() {
    let mut server = Server::with(&["a", "b"]);
    granted(&mut server, "a", &limited(2, ask("alice", 10)));
    granted(&mut server, "a", &limited(2, ask("dave", AN_HOUR)));
    granted(&mut server, "b", &ask("bob", AN_HOUR));
    waits(&mut server, "b", &wait("alice", AN_HOUR));
    server.pass_ms(10);
    waits(&mut server, "a", &wait("bob", AN_HOUR));
}

#[test]
fn waiting_for_two_free_locks_in_grace_is_no_deadlock() {
    let mut server = Server::with(&["a", "b"]);
    server.grace(10);
    waits(&mut server, "a", &wait("alice", AN_HOUR));
    waits(&mut server, "b", &wait("alice", AN_HOUR));
}

#[test]
fn waiting_twice_for_a_free_lock_in_grace_is_no_deadlock() {
    let mut server = Server::with(&["a"]);
    server.grace(10);
    waits(&mut server, "a", &wait("alice", AN_HOUR));
    waits(&mut server, "a", &wait("alice", AN_HOUR));
}

#[test]
fn repeated_reqid_keeps_its_queue_position() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    for id in ["r1", "r2", "r1"] {
        waits(&mut server, "a", &named(id, wait("bob", AN_HOUR)));
    }
    server.release("a", "alice", Holds::One).expect("alice holds it");
    let bob = &server.lock("a").holders()[0];
    assert_eq!(
        bob.request_ids(),
        [b"r1".as_slice().into(), b"r2".as_slice().into()]
    );
}

/// Alice acquires `a` with request id r1. The key is dumped and deleted, and Bob acquires it. Alice never got the
/// reply, retries, and waits. Then the key is restored.
#[test]
fn waiting_reqid_restored_as_hold_counts_once() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &named("r1", ask("alice", AN_HOUR)));
    let dumped = server.lock("a").clone();
    server.replace("a", Default::default());
    granted(&mut server, "a", &ask("bob", AN_HOUR));
    let again = waits(&mut server, "a", &named("r1", wait("alice", AN_HOUR)));
    server.replace("a", dumped);
    server.process_due();
    assert!(has_been_granted(&server, again));
    assert_eq!(server.lock("a").holders()[0].holds(), 1);
}

#[test]
fn wait_table_updates_limit_of_returning_holder() {
    let mut server = Server::with(&["a", "b"]);
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    granted(&mut server, "b", &shared(ask("alice", AN_HOUR)));
    waits(&mut server, "a", &wait("bob", AN_HOUR));
    let of_alice = server.lock("b").clone();
    server.replace("a", of_alice);
    server.process_due();
    let name = server.name("a");
    let entry = server.engine.wait_table.entry(name.as_ref()).unwrap();
    assert_eq!(entry.holders[0].limit, Limit::SHARED);
}

#[test]
fn waiter_lease_starts_at_grant_with_its_own_waited_ms() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &ask("alice", 100));
    server.pass_ms(1);
    waits(&mut server, "a", &wait("bob", 30));
    server.pass_ms(60);
    server.release("a", "alice", Holds::One).expect("alice holds it");
    let [(_, Answer::Granted(bob))] = server.answers.as_slice() else {
        panic!("{:?}", server.answers)
    };
    assert_eq!((bob.lease_ms, bob.waited_ms, bob.holds), (30, 60, 1));
}

/// A client disconnects before its grant reaches it. Then the key is deleted.
#[test]
fn rollback_of_missing_grant_grants_queue() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    waits(&mut server, "a", &wait("bob", AN_HOUR));
    let carol = waits(&mut server, "a", &wait("carol", AN_HOUR));
    server.release("a", "alice", Holds::One).expect("alice holds it");
    let fence = server.lock("a").holders()[0].fence();
    server.replace("a", Default::default());
    server.rollback_grant("a", "bob", fence, Holds::One);
    server.process_due();
    assert!(has_been_granted(&server, carol));
}

/// In a grace period a holder waits to re-enter. Its undelivered grant with the same request id was already
/// released.
#[test]
fn rollback_of_missing_grant_keeps_waiting_reqid() {
    let mut server = Server::with(&["a"]);
    granted(&mut server, "a", &ask("alice", AN_HOUR));
    let fence = server.lock("a").holders()[0].fence();
    server.grace(10);
    let again = waits(&mut server, "a", &named("r1", wait("alice", AN_HOUR)));
    assert!(!server.rollback_grant("a", "alice", fence, Holds::ById(b"r1")));
    server.pass_ms(10);
    server.process_due();
    assert!(has_been_granted(&server, again));
}
