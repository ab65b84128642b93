//! What `tests/spec`, which replays the specification on the lock, does not see: times, requests without a reply, GUARD,
//! who stands in the queue, the holds that a release leaves. A breach has no run, and the same history without the breach
//! has one.

use super::{Found, Part, check};
use crate::history::{Acquire, Element, Limit, Op, Push, Reply, Request, Wait};
use crate::recorded::{
    EXTEND, MUTEX, RELEASE, acquire, acquire_with_reqid, grant, grant_of, history, in_term, op, refused,
};

#[track_caller]
fn assert_run(ops: Vec<Op>) {
    assert_eq!(found(ops, Part::Whole), Found::Run);
}

#[track_caller]
fn assert_no_run(ops: Vec<Op>) {
    let found = found(ops, Part::Whole);
    assert!(matches!(found, Found::NoRun(_)), "{found:?}");
}

fn found(ops: Vec<Op>, part: Part) -> Found {
    let history = history(ops);
    let mut checked = check(&history, part);
    assert_eq!(checked.len(), 1);
    checked.remove(0).found
}

/// Alice holds the lock from 0 ms on.
fn after_alice(ops: impl IntoIterator<Item = Op>) -> Vec<Op> {
    let alice = op("alice", 0, 1, acquire(MUTEX), grant(7));
    [alice].into_iter().chain(ops).collect()
}

fn waiting(limit: Limit) -> Request {
    Request::Acquire(Acquire {
        lease_ms: 1_000,
        limit,
        wait: Wait::Block { timeout_ms: 5_000 },
        reqid: None,
    })
}

fn undo(id: &str) -> Request {
    Request::Release {
        fence: None,
        all: false,
        reqid: Some(id.into()),
    }
}

fn push(fence: u64) -> Request {
    Request::Push(Push {
        list: "{door}:guarded".into(),
        element: Element { fence, number: 1 },
    })
}

#[test]
fn evidence_is_where_the_furthest_run_ends() {
    let ops = after_alice([
        op("bob", 10, 11, acquire(MUTEX), Reply::Null),
        op("bob", 20, 21, acquire(MUTEX), grant(8)),
        op("bob", 30, 31, acquire(MUTEX), Reply::Null),
    ]);
    assert_eq!(found(ops, Part::Whole), Found::NoRun(vec![2]));
}

#[test]
fn mutex_has_one_holder() {
    let bob = |at| op("bob", at, at + 1, acquire(MUTEX), grant(8));
    assert_no_run(after_alice([bob(500)]));
    // The lease has ended.
    assert_run(after_alice([bob(1_010)]));
}

#[test]
fn lease_lasts_until_its_end_and_not_longer() {
    let extend = |at, reply| op("alice", at, at + 1, EXTEND, reply);
    assert_no_run(after_alice([extend(900, refused("NOTHELD"))]));
    assert_run(after_alice([extend(900, Reply::Lease(1_000))]));
    assert_no_run(after_alice([extend(1_010, Reply::Lease(1_000))]));
    assert_run(after_alice([extend(1_010, refused("NOTHELD"))]));
}

#[test]
fn release_of_a_request_leaves_other_holds() {
    let two = |left| {
        after_alice([
            op("alice", 10, 11, acquire_with_reqid("r"), grant_of(7, 2, 1_000, 0)),
            op("alice", 20, 21, undo("r"), Reply::Remaining(left)),
            op("alice", 30, 31, undo("r"), Reply::Remaining(left)),
        ])
    };
    assert_no_run(two(0));
    assert_run(two(1));
}

#[test]
fn first_waiter_is_granted_first() {
    let waiters = |bob: u64, carol: u64| {
        after_alice([
            op("bob", 10, bob, waiting(MUTEX), grant_of(bob, 1, 1_000, bob - 11)),
            op(
                "carol",
                20,
                carol,
                waiting(MUTEX),
                grant_of(carol, 1, 1_000, carol - 21),
            ),
            op("alice", 99, 100, RELEASE, Reply::Remaining(0)),
            op("bob", 199, 201, RELEASE, Reply::Remaining(0)),
            op("carol", 199, 201, RELEASE, Reply::Remaining(0)),
        ])
    };
    assert_run(waiters(100, 200));
    assert_no_run(waiters(200, 100));
}

#[test]
fn waiter_is_granted_when_the_lock_becomes_free() {
    let bob = |replied_ms, waited_ms| {
        after_alice([
            op(
                "bob",
                10,
                replied_ms,
                waiting(MUTEX),
                grant_of(8, 1, 1_000, waited_ms),
            ),
            op("alice", 99, 100, RELEASE, Reply::Remaining(0)),
        ])
    };
    assert_run(bob(501, 90));
    assert_no_run(bob(501, 480));
    assert_no_run(bob(61, 50));
}

#[test]
fn reader_in_the_queue_waits_behind_a_writer() {
    let carol = |replied, waited_ms, fence| {
        let granted = grant_of(fence, 1, 1_000, waited_ms);
        vec![
            op("alice", 0, 1, acquire(Limit::Shared), grant(7)),
            op("bob", 10, 101, waiting(MUTEX), grant_of(9, 1, 1_000, 90)),
            op("carol", 20, replied, waiting(Limit::Shared), granted),
            op("alice", 99, 100, RELEASE, Reply::Remaining(0)),
            op("bob", 199, 201, RELEASE, Reply::Remaining(0)),
        ]
    };
    assert_no_run(carol(81, 60, 8));
    assert_run(carol(201, 180, 10));
}

#[test]
fn waiter_that_gave_up_counts_until_then() {
    let history = |carol, reply| {
        vec![
            op("alice", 0, 1, acquire(Limit::Shared), grant(7)),
            op("bob", 10, 50, waiting(MUTEX), Reply::Null),
            op("carol", carol, carol + 1, acquire(Limit::Shared), reply),
        ]
    };
    assert_run(history(20, Reply::Null));
    assert_run(history(60, grant(8)));
    assert_no_run(history(60, Reply::Null));
}

#[test]
fn guard_writes_only_for_the_holder_and_in_one_step() {
    let write = |fence, reply| op("alice", 20, 21, push(fence), reply);
    assert_run(after_alice([write(7, Reply::Length(1))]));
    assert_no_run(after_alice([write(6, Reply::Length(1))]));
    assert_run(after_alice([write(6, refused("STALE"))]));
    assert_no_run(after_alice([write(7, refused("NOTHELD"))]));
    let released = |reply| after_alice([op("alice", 10, 11, RELEASE, Reply::Remaining(0)), write(7, reply)]);
    assert_no_run(released(Reply::Length(1)));
    assert_run(released(refused("NOTHELD")));
}

#[test]
fn guard_counts_each_write() {
    let twice = |length| {
        after_alice([
            op("alice", 10, 11, push(7), Reply::Length(1)),
            op("alice", 20, 21, push(7), Reply::Length(length)),
        ])
    };
    assert_no_run(twice(1));
    assert_no_run(twice(3));
    assert_run(twice(2));
}

#[test]
fn requests_at_the_same_time_are_in_any_order() {
    assert_run(vec![
        op("alice", 0, 10, acquire(MUTEX), Reply::Null),
        op("bob", 0, 10, acquire(MUTEX), grant(7)),
    ]);
}

#[test]
fn request_without_reply_explains_others() {
    for unknown in [Reply::Disconnected, Reply::TimedOut] {
        let bob = |fence| op("bob", 50, 51, acquire(MUTEX), grant(fence));
        // It was released.
        assert_run(after_alice([
            op("alice", 10, 11, RELEASE, unknown.clone()),
            bob(8),
        ]));
        // Alice was granted the lock, under a fence that is not known.
        let alice = op("alice", 0, 1, acquire(MUTEX), unknown.clone());
        let refused = op("bob", 50, 51, acquire(MUTEX), Reply::Null);
        assert_run(vec![alice.clone(), refused.clone()]);
        // It arrived late, but not twice.
        let later = op("bob", 1_500, 1_501, acquire(MUTEX), Reply::Null);
        assert_run(vec![alice.clone(), later.clone()]);
        assert_no_run(vec![alice, refused, later]);
        // Alice repeats the request, and learns of the hold of the first.
        assert_run(vec![
            op("alice", 0, 1, acquire_with_reqid("r"), unknown),
            op("alice", 500, 501, acquire_with_reqid("r"), grant_of(7, 1, 600, 0)),
        ]);
    }
}

#[test]
fn grant_without_reply_needs_a_fence() {
    let released = |fence| {
        after_alice([
            op("alice", 10, 11, RELEASE, Reply::Remaining(0)),
            op("bob", 20, 21, acquire(MUTEX), Reply::Disconnected),
            op("carol", 30, 31, acquire(MUTEX), Reply::Null),
            op("carol", 1_030, 1_031, acquire(MUTEX), grant(fence)),
        ])
    };
    assert_run(released(9));
    assert_no_run(released(8));
}

#[test]
fn leases_last_longer_after_a_restart_but_not_less() {
    let bob = |term, reply| in_term(term, op("bob", 1_500, 1_501, acquire(MUTEX), reply));
    assert_no_run(after_alice([bob(0, Reply::Null)]));
    assert_run(after_alice([bob(1, Reply::Null)]));
    assert_run(after_alice([bob(1, grant(8))]));
    let early = in_term(1, op("bob", 500, 501, acquire(MUTEX), grant(8)));
    assert_no_run(after_alice([early.clone()]));
    assert_eq!(found(after_alice([early]), Part::FirstTerm), Found::Run);
}
