//! Each checker finds a seeded fault in a history, and nothing in the same history without the fault.

use super::*;
use crate::history::{Element, FinalState, GUARDED, Limit, List, Push, Reply, Request, Restored, Wait};
use crate::recorded::*;

/// Alice holds from 10 to 500 ms, bob from `bob_ms` on.
fn alice_then_bob(bob_ms: u64, release: Reply) -> History {
    history(vec![
        op("alice", 0, 10, acquire(MUTEX), grant(1)),
        op("alice", 500, 510, RELEASE, release),
        op("bob", bob_ms, bob_ms + 5, acquire(MUTEX), grant(2)),
    ])
}

#[test]
fn overlap_of_two_mutex_holders_is_detected() {
    assert_eq!(overlaps(&alice_then_bob(400, Reply::Remaining(0))).len(), 1);
    assert!(overlaps(&alice_then_bob(505, Reply::Remaining(0))).is_empty());
}

#[test]
fn hold_ends_when_release_is_sent_even_without_reply() {
    for unknown in [Reply::Disconnected, Reply::TimedOut] {
        assert!(overlaps(&alice_then_bob(505, unknown)).is_empty());
    }
    // One of two holds was released.
    assert_eq!(overlaps(&alice_then_bob(505, Reply::Remaining(1))).len(), 1);
}

#[test]
fn hold_ends_at_safe_deadline() {
    // 0 + 1000 * 0.999 - 2 = 997
    assert_eq!(overlaps(&with_a_second_holder_at(996)).len(), 1);
    assert!(overlaps(&with_a_second_holder_at(997)).is_empty());
}

fn with_a_second_holder_at(ms: u64) -> History {
    history(vec![
        op("alice", 0, 10, acquire(MUTEX), grant(1)),
        op("bob", ms - 1, ms, acquire(MUTEX), grant(2)),
    ])
}

#[test]
fn extend_prolongs_hold_and_rejected_extend_ends_it() {
    let extended = |reply| {
        history(vec![
            op("alice", 0, 10, acquire(MUTEX), grant(1)),
            op("alice", 600, 610, EXTEND, reply),
            op("bob", 1_200, 1_210, acquire(MUTEX), grant(2)),
            op("carol", 700, 710, acquire(Limit::Shared), grant(3)),
        ])
    };
    // Carol overlaps with alice; so does bob if the lease was extended.
    assert_eq!(overlaps(&extended(Reply::Lease(1_000))).len(), 2);
    assert_eq!(overlaps(&extended(refused("NOTHELD lock is not held"))).len(), 1);
}

#[test]
fn deadline_includes_time_in_queue() {
    let history = history(vec![
        op("alice", 0, 2_010, acquire(MUTEX), grant_of(1, 1, 1_000, 2_000)),
        op("bob", 2_900, 2_910, acquire(MUTEX), grant(2)),
    ]);
    assert_eq!(overlaps(&history).len(), 1);
}

#[test]
fn semaphore_overlap_uses_strictest_limit() {
    let three = |limits: [Limit; 3]| {
        let owners = ["alice", "bob", "carol"].into_iter().zip(limits).zip(1..);
        let ops = owners.map(|((owner, limit), n)| op(owner, n * 10, n * 10 + 5, acquire(limit), grant(n)));
        overlaps(&history(ops.collect())).len()
    };
    assert_eq!(three([Limit::Of(3), Limit::Of(3), Limit::Of(3)]), 0);
    assert_eq!(three([Limit::Of(3), Limit::Of(2), Limit::Of(3)]), 1);
    assert_eq!(three([Limit::Shared, Limit::Shared, Limit::Shared]), 0);
    assert_eq!(three([Limit::Shared, Limit::Shared, MUTEX]), 1);
}

#[test]
fn reentry_of_one_owner_is_no_overlap() {
    let history = history(vec![
        op("alice", 0, 10, acquire(MUTEX), grant(1)),
        op("alice", 20, 30, acquire(MUTEX), grant_of(1, 2, 1_000, 0)),
    ]);
    assert!(overlaps(&history).is_empty());
}

#[test]
fn non_increasing_fence_after_release_is_detected() {
    let next = |owner, fence| {
        wrong_fences(&history(vec![
            op("alice", 0, 10, acquire(MUTEX), grant(7)),
            op("alice", 20, 30, RELEASE, Reply::Remaining(0)),
            op(owner, 40, 50, acquire(MUTEX), grant(fence)),
        ]))
        .len()
    };
    assert_eq!(next("bob", 8), 0);
    assert_eq!(next("bob", 6), 1);
    assert_eq!(next("bob", 7), 2, "it is also a duplicate");
    assert_eq!(next("alice", 8), 0);
    assert_eq!(next("alice", 7), 1);
}

#[test]
fn fences_of_concurrent_grants_are_not_compared() {
    let history = history(vec![
        op("alice", 0, 50, acquire(Limit::Shared), grant(8)),
        op("bob", 40, 60, acquire(Limit::Shared), grant(7)),
    ]);
    assert!(wrong_fences(&history).is_empty());
}

#[test]
fn fence_of_waiter_counts_from_end_of_wait() {
    let fence_of_the_waiter = |fence| {
        wrong_fences(&history(vec![
            op("alice", 0, 100, acquire(MUTEX), grant(7)),
            op("bob", 10, 400, acquire(MUTEX), grant_of(fence, 1, 1_000, 300)),
        ]))
        .len()
    };
    assert_eq!(fence_of_the_waiter(8), 0);
    assert_eq!(fence_of_the_waiter(6), 1);
}

#[test]
fn fence_of_old_primary_must_stay_below_new_term() {
    let fence_of_the_old_one = |fence| {
        wrong_fences(&history(vec![
            in_term(2, op("bob", 40, 50, acquire(MUTEX), grant(100))),
            in_term(1, op("alice", 60, 70, acquire(MUTEX), grant(fence))),
        ]))
        .len()
    };
    assert_eq!(fence_of_the_old_one(99), 0);
    assert_eq!(fence_of_the_old_one(101), 1);
}

#[test]
fn changed_fence_on_reentry_is_detected() {
    let re_entry = |fence, term| {
        let again = op("alice", 40, 50, acquire(MUTEX), grant_of(fence, 2, 1_000, 0));
        wrong_fences(&history(vec![
            op("alice", 0, 10, acquire(MUTEX), grant(5)),
            op("alice", 12, 14, RELEASE, Reply::Remaining(0)),
            op("alice", 20, 30, acquire(MUTEX), grant(7)),
            in_term(term, again),
        ]))
        .len()
    };
    assert_eq!(re_entry(7, 0), 0);
    assert_eq!(re_entry(5, 0), 1);
    assert_eq!(re_entry(8, 0), 1);
    assert_eq!(re_entry(5, 1), 0, "a new primary may know only an earlier hold");
    assert_eq!(re_entry(8, 1), 1);
}

#[test]
fn changed_fence_of_repeated_request_is_detected_unless_first_reply_was_lost() {
    let repeated = |first: Reply, fence| {
        wrong_fences(&history(vec![
            op("alice", 0, 10, acquire(MUTEX), grant(5)),
            op("alice", 12, 14, RELEASE, Reply::Remaining(0)),
            op("alice", 20, 30, acquire_with_reqid("r1"), first),
            op("alice", 40, 50, acquire_with_reqid("r1"), grant(fence)),
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
fn denied_hold_before_deadline_is_a_broken_lease() {
    let denials = |sent_ms, request: Request, reply: Reply| {
        broken_leases(&history(vec![
            op("alice", 0, 10, acquire(MUTEX), grant(7)),
            op("alice", sent_ms, sent_ms + 5, request, reply),
        ]))
        .len()
    };
    assert_eq!(denials(500, EXTEND, Reply::Lease(1_000)), 0);
    assert_eq!(denials(500, EXTEND, refused("NOTHELD lock is not held")), 1);
    assert_eq!(denials(500, RELEASE, refused("NOTOWNER held by others")), 1);
    assert_eq!(
        denials(995, EXTEND, refused("NOTHELD lock is not held")),
        0,
        "the deadline had passed"
    );
    assert_eq!(denials(500, acquire(MUTEX), Reply::Null), 1);
    assert_eq!(denials(500, acquire(MUTEX), grant(8)), 1);
    assert_eq!(denials(500, acquire(MUTEX), grant_of(7, 2, 1_000, 0)), 0);
    let stale = |fence| Request::Extend {
        lease_ms: 1_000,
        fence: Some(fence),
    };
    assert_eq!(denials(500, stale(7), refused("STALE newer fence")), 1);
    assert_eq!(denials(500, stale(6), refused("STALE newer fence")), 0);
}

#[test]
fn release_without_reply_ends_promised_lease() {
    let after = |release: Reply| {
        broken_leases(&history(vec![
            op("alice", 0, 10, acquire(MUTEX), grant(7)),
            op("alice", 100, 110, RELEASE, release),
            op("alice", 500, 510, EXTEND, refused("NOTHELD lock is not held")),
        ]))
        .len()
    };
    assert_eq!(after(Reply::Disconnected), 0);
    assert_eq!(after(Reply::Remaining(0)), 0);
    assert_eq!(after(Reply::Remaining(1)), 1);
}

#[test]
fn later_request_granted_first_is_a_queue_jump() {
    let rival = |sent_ms, replied_ms, reply| {
        queue_jumps(&history(vec![
            op("alice", 0, 310, acquire(MUTEX), grant_of(8, 1, 1_000, 300)),
            op("bob", sent_ms, replied_ms, acquire(MUTEX), reply),
        ]))
        .len()
    };
    // Alice arrived by 10 ms and was granted at 300 ms or later.
    assert_eq!(rival(20, 30, grant(7)), 1);
    assert_eq!(rival(5, 30, grant(7)), 0, "bob may have arrived first");
    assert_eq!(rival(20, 305, grant(7)), 0, "alice may have been granted first");
    assert_eq!(
        rival(20, 30, grant_of(7, 2, 1_000, 0)),
        0,
        "a re-entry goes first"
    );
    assert_eq!(rival(20, 30, Reply::Null), 0);
}

#[test]
fn queue_order_of_two_servers_is_independent() {
    let history = history(vec![
        in_term(1, op("alice", 0, 310, acquire(MUTEX), grant_of(8, 1, 1_000, 300))),
        in_term(2, op("bob", 20, 30, acquire(MUTEX), grant(70))),
    ]);
    assert!(queue_jumps(&history).is_empty());
}

#[test]
fn missing_and_duplicate_replies_are_detected() {
    let replied = |reply: Reply, may_miss| {
        let history = history(vec![op("alice", 0, 10, acquire(MUTEX), reply)]);
        wrong_replies(&history, may_miss).len()
    };
    assert_eq!(replied(Reply::TimedOut, false), 1);
    assert_eq!(replied(Reply::TimedOut, true), 0);
    assert_eq!(replied(Reply::Unexpected("+PONG".into()), true), 1);
    assert_eq!(replied(Reply::Disconnected, false), 0);
    assert_eq!(replied(grant(1), false), 0);
}

#[test]
fn waiter_without_reply_is_lost_only_if_its_server_answers_others() {
    let waiter = || {
        let mut waiter = op("alice", 0, 5_000, acquire(MUTEX), Reply::TimedOut);
        if let Request::Acquire(acquire) = &mut waiter.request {
            acquire.wait = Wait::Block { timeout_ms: 2_000 };
        }
        waiter
    };
    let lost = |other: Op| lost_waiters(&history(vec![other, waiter()])).len();
    assert_eq!(lost(op("bob", 2_500, 2_600, acquire(MUTEX), grant(2))), 1);
    assert_eq!(
        lost(op("bob", 1_500, 2_600, acquire(MUTEX), grant(2))),
        0,
        "sent before the waiter's time had ended"
    );
    let silent = op("bob", 2_500, 4_600, acquire(MUTEX), Reply::TimedOut);
    assert_eq!(lost(silent), 0, "the server is silent");
    let elsewhere = in_term(2, op("bob", 2_500, 2_600, acquire(MUTEX), grant(2)));
    assert_eq!(lost(elsewhere), 0, "another server");
}

#[test]
fn what_is_left_at_the_end_is_detected() {
    let problems = |change: fn(&mut History)| {
        let mut history = History::default();
        history.final_states.push(FinalState {
            port: 1,
            keys: 0,
            waiting: 0,
            inboxes: 0,
            crash: None,
        });
        change(&mut history);
        unclean_final_states(&history).len()
    };
    assert_eq!(problems(|_| {}), 0);
    assert_eq!(problems(|history| history.final_states[0].keys = 1), 1);
    assert_eq!(problems(|history| history.final_states[0].waiting = 2), 1);
    assert_eq!(problems(|history| history.final_states[0].inboxes = 1), 1);
    assert_eq!(
        problems(|history| history.final_states[0].crash = Some("assertion".into())),
        1
    );
    assert_eq!(
        problems(|history| history.unfinished.push("alice was never answered".into())),
        1
    );
}

#[test]
fn unknown_state_after_restart_is_detected() {
    let found = |found: &str| {
        let restored = Restored {
            after: "a truncated AOF".into(),
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
    assert_eq!(found("door is free"), 1);
}

/// A write that GUARD accepted.
fn write(owner: &str, sent_ms: u64, replied_ms: u64, element: &str) -> Op {
    let (list, element) = (GUARDED.into(), element_of(element));
    let push = Request::Push(Push { list, element });
    op(owner, sent_ms, replied_ms, push, Reply::Length(1))
}

fn element_of(text: &str) -> Element {
    Element::parse(text).expect("fence:number")
}

/// At the end the server has this list.
fn with_list(ops: Vec<Op>, elements: &str) -> History {
    let list = List {
        name: GUARDED.into(),
        elements: elements.split_whitespace().map(element_of).collect(),
        is_final: true,
    };
    History {
        lists: vec![list],
        ..history(ops)
    }
}

/// The writes that prove a wrong order, if alice and then bob are granted the lock and write.
fn misordered(alice_sent_ms: u64, alice_replied_ms: u64, elements: &str) -> Vec<Vec<usize>> {
    let ops = vec![
        op("alice", 0, 10, acquire(MUTEX), grant(1)),
        op("bob", 500, 510, acquire(MUTEX), grant(2)),
        write("bob", 520, 530, "2:1"),
        write("alice", alice_sent_ms, alice_replied_ms, "1:1"),
    ];
    let found = misordered_writes(&with_list(ops, elements)).into_iter();
    found.map(|violation| violation.ops).collect()
}

#[test]
fn write_after_that_of_next_holder_is_detected() {
    assert_eq!(misordered(600, 610, "2:1 1:1"), [[2, 3]]);
    // Sent before bob's grant: a GUARD that checks and writes in two steps.
    assert_eq!(misordered(490, 540, "2:1 1:1"), [[2, 3]]);
    assert!(misordered(490, 540, "1:1 2:1").is_empty(), "executed before it");
}

#[test]
fn guard_that_does_not_compare_fences_is_detected() {
    let found = |reply, elements| {
        let ops = vec![
            op("alice", 0, 10, acquire(MUTEX), grant(1)),
            op("alice", 20, 30, RELEASE, Reply::Remaining(0)),
            op("alice", 40, 50, acquire(MUTEX), grant(2)),
            write("alice", 60, 70, "2:1"),
            Op {
                reply,
                ..write("alice", 80, 90, "1:2")
            },
        ];
        misordered_writes(&with_list(ops, elements)).len()
    };
    assert_eq!(found(refused("STALE newer fence"), "2:1"), 0);
    assert_eq!(found(Reply::Length(2), "2:1 1:2"), 1);
}

#[test]
fn repeated_and_reordered_writes_of_one_grant_are_detected() {
    let found = |elements| misordered_writes(&with_list(Vec::new(), elements)).len();
    assert_eq!(found("1:1 1:2 1:4 2:3"), 0);
    assert_eq!(found("1:1 1:1"), 1);
    assert_eq!(found("1:2 1:1"), 1);
}

#[test]
fn lost_writes_before_end_of_their_term_are_detected() {
    let lost = |elements, lossless| {
        let ops = vec![
            write("alice", 0, 10, "1:1"),
            write("alice", 20, 30, "1:2"),
            write("alice", 40, 50, "1:3"),
            in_term(1, write("alice", 60, 70, "1:4")),
        ];
        let found = lost_elements(&with_list(ops, elements), lossless).into_iter();
        found.flat_map(|violation| violation.ops).collect::<Vec<_>>()
    };
    assert!(lost("1:1 1:4", false).is_empty(), "a grant lives on");
    assert_eq!(lost("1:1 1:3 1:4", false), [1]);
    assert!(lost("1:1 1:2 1:3 1:4", true).is_empty());
    assert_eq!(lost("1:1 1:2", true), [2, 3], "nothing may be lost");
}

#[test]
fn guard_refused_before_deadline_is_a_broken_lease() {
    let denials = |element, released_ms| {
        let reply = refused("NOTHELD lock is not held");
        let denied = Op {
            reply,
            ..write("alice", 500, 510, element)
        };
        let grant = op("alice", 0, 10, acquire(MUTEX), grant(7));
        let release = op(
            "alice",
            released_ms,
            released_ms + 10,
            RELEASE,
            Reply::Remaining(0),
        );
        broken_leases(&history(vec![grant, denied, release])).len()
    };
    assert_eq!(denials("7:1", 520), 1);
    assert_eq!(denials("6:1", 520), 0, "an outdated fence");
    assert_eq!(denials("7:1", 505), 0, "released on another connection");
}
