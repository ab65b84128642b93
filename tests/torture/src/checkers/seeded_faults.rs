//! Each checker against histories with one seeded_faults fault, and against the same without it.

use super::*;
use crate::history::{Acquire, FinalState, Limit, Reply, Request, Restored, ServerTerm, Write};

const MUTEX: Limit = Limit::Of(1);

/// Requests of one lock; times in milliseconds.
fn history(ops: Vec<Op>) -> History {
    History {
        ops,
        ..History::default()
    }
}

fn op(owner: &str, sent_ms: u64, answered_ms: u64, request: Request, reply: Reply) -> Op {
    Op {
        owner: owner.into(),
        key: "door".into(),
        server: ServerTerm::default(),
        request,
        sent: sent_ms * 1_000,
        replied: answered_ms * 1_000,
        reply,
    }
}

fn asks(limit: Limit) -> Request {
    Request::Acquire(Acquire {
        lease_ms: 1_000,
        limit,
        block_ms: None,
        reqid: None,
    })
}

fn names(id: &str) -> Request {
    Request::Acquire(Acquire {
        lease_ms: 1_000,
        limit: MUTEX,
        block_ms: None,
        reqid: Some(id.into()),
    })
}

fn grant(fence: u64) -> Reply {
    grant_of(fence, 1, 1_000, 0)
}

fn grant_of(fence: u64, holds: u64, lease_ms: u64, waited_ms: u64) -> Reply {
    Reply::Granted {
        fence,
        holds,
        lease_ms,
        waited_ms,
    }
}

const RELEASE: Request = Request::Release {
    fence: None,
    all: false,
    reqid: None,
};

const EXTEND: Request = Request::Extend {
    lease_ms: 1_000,
    fence: None,
};

fn refused(error: &str) -> Reply {
    Reply::Error(error.into())
}

fn in_term(term: u32, op: Op) -> Op {
    Op {
        server: ServerTerm { port: 0, term },
        ..op
    }
}

/// Alice holds from 10 to 500 ms, bob from `bob_ms` on.
fn alice_then_bob(bob_ms: u64, release: Reply) -> History {
    history(vec![
        op("alice", 0, 10, asks(MUTEX), grant(1)),
        op("alice", 500, 510, RELEASE, release),
        op("bob", bob_ms, bob_ms + 5, asks(MUTEX), grant(2)),
    ])
}

#[test]
fn two_holders_of_a_mutex_are_an_overlap() {
    assert_eq!(overlaps(&alice_then_bob(400, Reply::Remaining(0))).len(), 1);
    assert!(overlaps(&alice_then_bob(505, Reply::Remaining(0))).is_empty());
}

#[test]
fn a_release_counts_from_when_it_was_sent_even_if_its_answer_never_came() {
    for unknown in [Reply::Disconnected, Reply::TimedOut] {
        assert!(overlaps(&alice_then_bob(505, unknown)).is_empty());
    }
    // One of two holds was given back.
    assert_eq!(overlaps(&alice_then_bob(505, Reply::Remaining(1))).len(), 1);
}

#[test]
fn a_hold_ends_at_its_safe_deadline() {
    // 0 + 1000 * 0.999 - 2 = 997
    assert_eq!(overlaps(&with_a_second_holder_at(996)).len(), 1);
    assert!(overlaps(&with_a_second_holder_at(997)).is_empty());
}

fn with_a_second_holder_at(ms: u64) -> History {
    history(vec![
        op("alice", 0, 10, asks(MUTEX), grant(1)),
        op("bob", ms - 1, ms, asks(MUTEX), grant(2)),
    ])
}

#[test]
fn an_extension_prolongs_a_hold_and_a_refused_one_ends_it() {
    let extended = |reply| {
        history(vec![
            op("alice", 0, 10, asks(MUTEX), grant(1)),
            op("alice", 600, 610, EXTEND, reply),
            op("bob", 1_200, 1_210, asks(MUTEX), grant(2)),
            op("carol", 700, 710, asks(Limit::Shared), grant(3)),
        ])
    };
    // Carol comes while alice holds; bob too, if the lease was extended.
    assert_eq!(overlaps(&extended(Reply::Lease(1_000))).len(), 2);
    assert_eq!(overlaps(&extended(refused("NOTHELD nobody"))).len(), 1);
}

#[test]
fn the_time_in_the_queue_counts_for_the_deadline() {
    let history = history(vec![
        op("alice", 0, 2_010, asks(MUTEX), grant_of(1, 1, 1_000, 2_000)),
        op("bob", 2_900, 2_910, asks(MUTEX), grant(2)),
    ]);
    assert_eq!(overlaps(&history).len(), 1);
}

#[test]
fn a_semaphore_has_as_many_holders_as_its_strictest_limit() {
    let three = |limits: [Limit; 3]| {
        let owners = ["alice", "bob", "carol"].into_iter().zip(limits).zip(1..);
        let ops = owners.map(|((owner, limit), n)| op(owner, n * 10, n * 10 + 5, asks(limit), grant(n)));
        overlaps(&history(ops.collect())).len()
    };
    assert_eq!(three([Limit::Of(3), Limit::Of(3), Limit::Of(3)]), 0);
    assert_eq!(three([Limit::Of(3), Limit::Of(2), Limit::Of(3)]), 1);
    assert_eq!(three([Limit::Shared, Limit::Shared, Limit::Shared]), 0);
    assert_eq!(three([Limit::Shared, Limit::Shared, MUTEX]), 1);
}

#[test]
fn one_owner_never_overlaps_with_itself() {
    let history = history(vec![
        op("alice", 0, 10, asks(MUTEX), grant(1)),
        op("alice", 20, 30, asks(MUTEX), grant_of(1, 2, 1_000, 0)),
    ]);
    assert!(overlaps(&history).is_empty());
}

#[test]
fn a_fence_that_falls_or_stays_with_a_change_of_owner_is_wrong() {
    let second = |fence| {
        wrong_fences(&history(vec![
            op("alice", 0, 10, asks(MUTEX), grant(7)),
            op("alice", 20, 30, RELEASE, Reply::Remaining(0)),
            op("bob", 40, 50, asks(MUTEX), grant(fence)),
        ]))
        .len()
    };
    assert_eq!(second(8), 0);
    assert_eq!(second(6), 1);
    assert_eq!(second(7), 2, "it also was given twice");
}

#[test]
fn an_owner_that_acquires_anew_gets_a_larger_fence() {
    let again = |fence| {
        wrong_fences(&history(vec![
            op("alice", 0, 10, asks(MUTEX), grant(7)),
            op("alice", 20, 30, RELEASE, Reply::Remaining(0)),
            op("alice", 40, 50, asks(MUTEX), grant(fence)),
        ]))
        .len()
    };
    assert_eq!(again(8), 0);
    assert_eq!(again(7), 1);
}

#[test]
fn grants_that_may_have_happened_in_either_order_are_not_compared() {
    let history = history(vec![
        op("alice", 0, 50, asks(Limit::Shared), grant(8)),
        op("bob", 40, 60, asks(Limit::Shared), grant(7)),
    ]);
    assert!(wrong_fences(&history).is_empty());
}

#[test]
fn a_waiter_is_granted_after_it_waited() {
    let fence_of_the_waiter = |fence| {
        wrong_fences(&history(vec![
            op("alice", 0, 100, asks(MUTEX), grant(7)),
            op("bob", 10, 400, asks(MUTEX), grant_of(fence, 1, 1_000, 300)),
        ]))
        .len()
    };
    assert_eq!(fence_of_the_waiter(8), 0);
    assert_eq!(fence_of_the_waiter(6), 1);
}

#[test]
fn an_old_primary_that_goes_on_must_stay_below_the_new_one() {
    let fence_of_the_old_one = |fence| {
        wrong_fences(&history(vec![
            in_term(2, op("bob", 40, 50, asks(MUTEX), grant(100))),
            in_term(1, op("alice", 60, 70, asks(MUTEX), grant(fence))),
        ]))
        .len()
    };
    assert_eq!(fence_of_the_old_one(99), 0);
    assert_eq!(fence_of_the_old_one(101), 1);
}

#[test]
fn re_entry_keeps_the_fence() {
    let re_entry = |fence, term| {
        let again = op("alice", 40, 50, asks(MUTEX), grant_of(fence, 2, 1_000, 0));
        wrong_fences(&history(vec![
            op("alice", 0, 10, asks(MUTEX), grant(5)),
            op("alice", 12, 14, RELEASE, Reply::Remaining(0)),
            op("alice", 20, 30, asks(MUTEX), grant(7)),
            in_term(term, again),
        ]))
        .len()
    };
    assert_eq!(re_entry(7, 0), 0);
    assert_eq!(re_entry(5, 0), 1);
    assert_eq!(re_entry(8, 0), 1);
    assert_eq!(re_entry(5, 1), 0, "a new primary may know an earlier hold only");
    assert_eq!(re_entry(8, 1), 1);
}

#[test]
fn a_repeated_request_is_a_re_entry_and_one_without_an_answer_excuses_it() {
    let repeated = |first: Reply, fence| {
        wrong_fences(&history(vec![
            op("alice", 0, 10, asks(MUTEX), grant(5)),
            op("alice", 12, 14, RELEASE, Reply::Remaining(0)),
            op("alice", 20, 30, names("r1"), first),
            op("alice", 40, 50, names("r1"), grant(fence)),
        ]))
        .len()
    };
    assert_eq!(repeated(grant(7), 7), 0);
    assert_eq!(repeated(grant(7), 8), 1);
    assert_eq!(repeated(Reply::Disconnected, 8), 0);
    let moved = refused("MOVED 1 127.0.0.1:2");
    assert_eq!(repeated(moved.clone(), 8), 0, "the first one made no hold");
    assert_eq!(repeated(moved, 5), 1);
}

#[test]
fn a_hold_that_is_denied_before_its_deadline_is_a_broken_lease() {
    let told = |sent_ms, request: Request, reply: Reply| {
        broken_leases(&history(vec![
            op("alice", 0, 10, asks(MUTEX), grant(7)),
            op("alice", sent_ms, sent_ms + 5, request, reply),
        ]))
        .len()
    };
    assert_eq!(told(500, EXTEND, Reply::Lease(1_000)), 0);
    assert_eq!(told(500, EXTEND, refused("NOTHELD nobody")), 1);
    assert_eq!(told(500, RELEASE, refused("NOTOWNER others")), 1);
    assert_eq!(
        told(995, EXTEND, refused("NOTHELD nobody")),
        0,
        "the deadline had come"
    );
    assert_eq!(told(500, asks(MUTEX), Reply::Null), 1);
    assert_eq!(told(500, asks(MUTEX), grant(8)), 1);
    assert_eq!(told(500, asks(MUTEX), grant_of(7, 2, 1_000, 0)), 0);
    let stale = |fence| Request::Extend {
        lease_ms: 1_000,
        fence: Some(fence),
    };
    assert_eq!(told(500, stale(7), refused("STALE another")), 1);
    assert_eq!(told(500, stale(6), refused("STALE another")), 0);
}

#[test]
fn after_a_release_whose_answer_never_came_nothing_is_promised() {
    let after = |release: Reply| {
        broken_leases(&history(vec![
            op("alice", 0, 10, asks(MUTEX), grant(7)),
            op("alice", 100, 110, RELEASE, release),
            op("alice", 500, 510, EXTEND, refused("NOTHELD nobody")),
        ]))
        .len()
    };
    assert_eq!(after(Reply::Disconnected), 0);
    assert_eq!(after(Reply::Remaining(0)), 0);
    assert_eq!(after(Reply::Remaining(1)), 1);
}

#[test]
fn who_came_later_and_was_served_first_has_overtaken() {
    let rival = |sent_ms, answered_ms, reply| {
        queue_jumps(&history(vec![
            op("alice", 0, 310, asks(MUTEX), grant_of(8, 1, 1_000, 300)),
            op("bob", sent_ms, answered_ms, asks(MUTEX), reply),
        ]))
        .len()
    };
    // Alice arrived by 10 ms, and was served at 300 ms or later.
    assert_eq!(rival(20, 30, grant(7)), 1);
    assert_eq!(rival(5, 30, grant(7)), 0, "bob may have come first");
    assert_eq!(rival(20, 305, grant(7)), 0, "alice may have been served first");
    assert_eq!(
        rival(20, 30, grant_of(7, 2, 1_000, 0)),
        0,
        "a re-entry goes first"
    );
    assert_eq!(rival(20, 30, Reply::Null), 0);
}

#[test]
fn queues_of_two_servers_have_nothing_to_do_with_each_other() {
    let history = history(vec![
        in_term(1, op("alice", 0, 310, asks(MUTEX), grant_of(8, 1, 1_000, 300))),
        in_term(2, op("bob", 20, 30, asks(MUTEX), grant(70))),
    ]);
    assert!(queue_jumps(&history).is_empty());
}

#[test]
fn a_request_without_an_answer_and_one_with_two_are_seen() {
    let replied = |reply: Reply, missing_replies| {
        let history = history(vec![op("alice", 0, 10, asks(MUTEX), reply)]);
        wrong_replies(&history, missing_replies).len()
    };
    assert_eq!(replied(Reply::TimedOut, MissingReplies::Forbidden), 1);
    assert_eq!(replied(Reply::TimedOut, MissingReplies::Allowed), 0);
    assert_eq!(
        replied(Reply::Unexpected("+PONG".into()), MissingReplies::Allowed),
        1
    );
    assert_eq!(replied(Reply::Disconnected, MissingReplies::Forbidden), 0);
    assert_eq!(replied(grant(1), MissingReplies::Forbidden), 0);
}

#[test]
fn an_acknowledged_element_that_is_not_stored_is_lost() {
    let write = |element, acknowledged| Write {
        element,
        fence: 7,
        at: 20_000,
        acknowledged,
    };
    let mut history = history(vec![op("alice", 0, 10, asks(MUTEX), grant(7))]);
    history.writes = vec![write(1, true), write(2, false), write(3, true)];
    assert!(lost_writes(&history).is_empty(), "no store was used");
    history.stored = Some([1, 3].into());
    assert!(lost_writes(&history).is_empty());
    history.stored = Some([1].into());
    let found = lost_writes(&history);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].ops, [0], "the grant under which it was written");
}

#[test]
fn what_is_left_and_a_crash_are_seen() {
    let clean = FinalState {
        port: 1,
        keys: 0,
        waiting: 0,
        crash: None,
    };
    let problems = |end: FinalState| {
        unclean_final_states(&History {
            final_states: vec![end],
            ..History::default()
        })
        .len()
    };
    assert_eq!(problems(clean.clone()), 0);
    assert_eq!(
        problems(FinalState {
            keys: 1,
            ..clean.clone()
        }),
        1
    );
    assert_eq!(
        problems(FinalState {
            waiting: 2,
            ..clean.clone()
        }),
        1
    );
    assert_eq!(
        problems(FinalState {
            crash: Some("assertion".into()),
            ..clean
        }),
        1
    );
}

#[test]
fn a_state_that_never_was_is_seen_after_a_start() {
    let found = |found: &str| {
        let restored = Restored {
            after: "a cut log".into(),
            expected: "alice holds door".into(),
            found: found.into(),
        };
        wrong_restores(&History {
            restored: vec![restored],
            ..History::default()
        })
        .len()
    };
    assert_eq!(found("alice holds door"), 0);
    assert_eq!(found("nobody holds door"), 1);
}
