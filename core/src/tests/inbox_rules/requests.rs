//! QUEUE: repeated, withdrawn and rejected requests.

use super::{SELF, held, only_grant, queued};
use crate::effects::Effects;
use crate::lock::Lock;
use crate::names::LockNameRef;
use crate::testing::Answer::{Holds, Queued};
use crate::testing::{Request, Server, inputs_at};
use crate::wire::{Acquired, Error, Full};

const A: LockNameRef<'_> = LockNameRef { db: 0, key: b"a" };

/// The waiters, those of them with QUEUE, the answers, and the inboxes.
fn counts(server: &Server) -> [usize; 4] {
    let inboxes = &server.state().inboxes;
    let waiters = server.state().wait_table.waiters();
    [waiters, inboxes.waiters(), inboxes.answers(), inboxes.len()]
}

/// An ACQUIRE of `a` by this user, whose effects are not carried out.
fn acquire_a(server: &mut Server, user: &[u8], args: &str, effects: &mut Effects) -> Result<Acquired, Error> {
    let text = format!("ACQUIRE {args}");
    let Request::Acquire(request) = Request::parse(&text) else {
        panic!("{text}");
    };
    let inputs = inputs_at(server.clock().now);
    let mut lock = server.lock_at(0).clone();
    let mut transition = server.state_mut().begin(&inputs, A, &mut lock, effects);
    transition.acquire(&request, user)
}

#[test]
fn queue_replies_how_many_wait_before_it_with_block_too() {
    let (mut server, _) = held();
    server.waits("ACQUIRE a bob 60000 BLOCK 0");
    assert_eq!(server.queued("ACQUIRE a carol 60000 QUEUE inbox 0 REQID r1"), 1);
    assert_eq!(server.queued("ACQUIRE a dave 60000 QUEUE inbox 0 REQID r1"), 2);
}

#[test]
fn queue_that_is_granted_at_once_needs_no_inbox() {
    let mut server = Server::with(&["a"]);
    server.granted("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
}

#[test]
fn queue_without_its_inbox_is_rejected_and_changes_nothing() {
    let (mut server, _) = held();
    let reply = server.call("ACQUIRE a bob 60000 QUEUE other 0 REQID r1");
    assert_eq!((reply, counts(&server)), (Err(Error::NoInbox), [0, 0, 0, 1]));
}

#[test]
fn queue_with_the_inbox_of_another_user_is_rejected_and_changes_nothing() {
    let (mut server, _) = held();
    let mut effects = Effects::default();
    let reply = acquire_a(
        &mut server,
        b"eve",
        "bob 60000 QUEUE inbox 0 REQID r1",
        &mut effects,
    );
    assert_eq!((reply, counts(&server)), (Err(Error::ForeignInbox), [0, 0, 0, 1]));
}

/// The key of the lock is gone, and the server does not take the new one, with bob's grant.
#[test]
fn request_queued_for_a_lock_that_is_not_stored_waits_no_more() {
    for wait in ["QUEUE inbox 0", "BLOCK 0"] {
        let (mut server, _) = held();
        server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
        server.replace(0, Lock::default());
        let (args, mut effects) = (format!("carol 60000 {wait} REQID r2"), Effects::default());
        let reply = acquire_a(&mut server, SELF.user, &args, &mut effects);
        assert!(matches!(reply, Ok(Acquired::Queued(_))), "{reply:?}");
        server.state_mut().undo_queued(A, &mut effects);
        server.state_mut().deliver(&mut effects);
        // The answer is bob's.
        assert_eq!((effects.parked, counts(&server)), (None, [0, 0, 1, 1]), "{wait}");
    }
}

#[test]
fn repeated_request_keeps_its_place_and_gets_one_answer() {
    let (mut server, cursor) = queued();
    assert_eq!(server.queued("ACQUIRE a bob 30 QUEUE inbox 0 REQID r1"), 0);
    server.released("RELEASE a alice");
    let bob = only_grant(&server.grants(&format!("inbox {cursor}")));
    assert_eq!((server.owners("a"), bob.lease_ms), (vec!["bob".into()], 30));
}

#[test]
fn late_copy_of_a_granted_request_is_replied_as_its_answer_is() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    let copy = server.granted("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
    let answer = only_grant(&server.grants(&format!("inbox {cursor}")));
    assert_eq!((copy.fence, copy.holds), (answer.fence, 1));
    assert_eq!((answer.holds, server.lock("a").holders()[0].holds()), (1, 1));
}

#[test]
fn late_copy_of_a_withdrawn_request_is_queued_at_the_end() {
    let (mut server, _) = queued();
    server.released("RELEASE a bob REQID r1");
    assert_eq!(server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1"), 1);
}

#[test]
fn request_repeated_for_another_inbox_is_answered_unblocked_in_the_former() {
    let (mut server, cursor) = queued();
    let other = server.grants("other 0").cursor;
    assert_eq!(server.queued("ACQUIRE a bob 60000 QUEUE other 0 REQID r1"), 0);
    assert_eq!(server.next_answers(cursor), ["UNBLOCKED r1 a bob"]);
    server.released("RELEASE a alice");
    let bob = only_grant(&server.grants(&format!("other {other}")));
    assert_eq!(bob.fence, server.lock("a").holders()[0].fence());
}

#[test]
fn queued_request_repeated_with_block_is_answered_unblocked() {
    let (mut server, cursor) = queued();
    let bob = server.waits("ACQUIRE a bob 60000 BLOCK 0 REQID r1");
    assert_eq!(server.next_answers(cursor), ["UNBLOCKED r1 a bob"]);
    server.released("RELEASE a alice");
    assert!(server.has_been_granted(bob));
}

#[test]
fn blocking_request_repeated_with_queue_is_unblocked() {
    let (mut server, cursor) = held();
    let bob = server.waits("ACQUIRE a bob 60000 BLOCK 0 REQID r1");
    server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
    assert_eq!(server.replies, [(bob, Err(Error::Replaced))]);
    server.released("RELEASE a alice");
    assert_eq!(server.next_answers(cursor), ["granted r1 a bob"]);
}

#[test]
fn withdrawn_request_is_answered_and_lets_the_next_one_go_first() {
    let (mut server, cursor) = queued();
    assert_eq!(server.call("RELEASE a bob REQID r1"), Ok(Holds(0)));
    server.released("RELEASE a alice");
    assert_eq!(
        server.next_answers(cursor),
        ["withdrawn r1 a bob", "granted r2 a carol"]
    );
}

/// The answer stays: its reader finds a grant that it does not hold any more.
#[test]
fn unread_grant_that_is_released_by_reqid_frees_the_lock() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    assert_eq!(server.call("RELEASE a bob REQID r1"), Ok(Holds(0)));
    assert_eq!(server.owners("a"), ["carol"]);
    assert_eq!(
        server.next_answers(cursor),
        ["granted r1 a bob", "granted r2 a carol"]
    );
}

#[test]
fn queue_that_closes_a_cycle_is_rejected_and_changes_nothing() {
    let (mut server, _) = held();
    server.released("RELEASE b alice");
    server.granted("ACQUIRE b bob 60000");
    server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1");
    let before = counts(&server);
    let reply = server.call("ACQUIRE b alice 60000 QUEUE inbox 0 REQID r2");
    assert!(matches!(reply, Err(Error::Deadlock(_))), "{reply:?}");
    assert_eq!(counts(&server), before);
}

/// Two waiters are here, and an inbox, which does not count.
fn full() -> (Server, u64) {
    let (mut server, cursor) = queued();
    server.set_policy(|policy| policy.max_waiters = 2);
    (server, cursor)
}

const QUEUE_FULL: Error = Error::QueueFull(Full::Server(2));

#[test]
fn full_server_rejects_queue_and_changes_nothing() {
    let (mut server, _) = full();
    let reply = server.call("ACQUIRE b dave 60000 QUEUE inbox 0 REQID r3");
    assert_eq!((reply, counts(&server)), (Err(QUEUE_FULL), [2, 2, 0, 1]));
}

#[test]
fn inboxes_have_a_limit_of_their_own() {
    let (mut server, cursor) = full();
    server.grants("other 0");
    server.set_policy(|policy| policy.max_inboxes = 2);
    assert_eq!(
        server.grants_error("another 0"),
        Error::QueueFull(Full::Inboxes(2))
    );
    assert_eq!(counts(&server), [2, 2, 0, 2]);
    // Those that are here are read as before.
    server.set_policy(|policy| policy.max_inboxes = 0);
    server.grants("other 0");
    server.grants(&format!("inbox {cursor} TTL 0"));
    server.run_due();
    server.set_policy(|policy| policy.max_inboxes = 2);
    server.grants("another 0");
}

#[test]
fn full_server_takes_a_repeated_request() {
    let (mut server, _) = full();
    assert_eq!(server.queued("ACQUIRE a bob 60000 QUEUE inbox 0 REQID r1"), 0);
}

#[test]
fn answer_counts_as_a_waiter_until_it_is_acknowledged() {
    let (mut server, cursor) = full();
    server.released("RELEASE a bob REQID r1");
    let request = "ACQUIRE b dave 60000 QUEUE inbox 0 REQID r3";
    let read = server.grants(&format!("inbox {cursor}")).cursor;
    assert_eq!(server.call(request), Err(QUEUE_FULL));
    server.grants(&format!("inbox {read}"));
    assert_eq!(server.call(request), Ok(Queued(0)));
}
