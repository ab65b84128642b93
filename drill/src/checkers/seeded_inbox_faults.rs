//! As the seeded faults of requests, for those that wait through an inbox.

use super::*;
use crate::history::{Acquire, Call, FinalState, Forgotten, Limit, Micros, Reply, Request, ServerTerm, Wait};
use crate::recorded::op;

const LEASE_MS: u64 = 1_000;

fn acquire() -> Acquire {
    Acquire {
        lease_ms: LEASE_MS,
        limit: Limit::Of(1),
        wait: Wait::Queue {
            inbox: "inbox".into(),
            timeout_ms: 0,
        },
        reqid: Some("r1".into()),
    }
}

fn queued(owner: &str, sent_ms: u64, replied_ms: u64) -> Op {
    op(
        owner,
        sent_ms,
        replied_ms,
        Request::Acquire(acquire()),
        Reply::Queued(0),
    )
}

fn answer(owner: &str, sent_ms: u64, replied_ms: u64, lease_ms: u64) -> Op {
    let reply = Reply::Granted {
        fence: 1,
        holds: 1,
        lease_ms,
        waited_ms: 0,
    };
    op(owner, sent_ms, replied_ms, Request::Answer(acquire()), reply)
}

/// Of the process of alice, whose name is `p1`.
fn call(sent_ms: u64, replied_ms: u64, answered: &[&str]) -> Call {
    Call {
        process: "p1".into(),
        server: ServerTerm::default(),
        sent: sent_ms * 1_000,
        replied: replied_ms * 1_000,
        made: false,
        answered: answered.iter().map(|owner| (*owner).to_owned()).collect(),
    }
}

const ALICE: &str = "p1.1";
const BOB: &str = "p2.1";

/// Alice is queued at 10 ms. Bob asks, and reads at 100 ms that he was granted just before. She has no answer yet.
fn alice_overtaken_by_bob(bob_sent_ms: u64) -> History {
    History {
        ops: vec![
            queued(ALICE, 0, 10),
            queued(BOB, bob_sent_ms, bob_sent_ms + 5),
            answer(BOB, 90, 100, LEASE_MS),
        ],
        calls: vec![call(50, 200, &[]), call(200, 300, &[])],
        ..History::default()
    }
}

#[test]
fn overtaken_waiter_is_detected() {
    assert_eq!(overtaken_waiters(&alice_overtaken_by_bob(20)).len(), 1);
    assert!(
        overtaken_waiters(&alice_overtaken_by_bob(9)).is_empty(),
        "bob may have come first"
    );
}

#[test]
fn waiter_may_lose_its_place() {
    let assert_in_order_after = |change: fn(&mut History)| {
        let mut history = alice_overtaken_by_bob(20);
        change(&mut history);
        assert!(overtaken_waiters(&history).is_empty());
    };
    assert_in_order_after(|history| history.calls[0].answered.push(ALICE.into()));
    assert_in_order_after(|history| history.calls[0].made = true);
    assert_in_order_after(|history| history.calls.clear());
    assert_in_order_after(|history| history.calls[1].server.term = 1);
    // She gave up.
    assert_in_order_after(|history| {
        let release = Request::Release {
            fence: None,
            all: false,
            reqid: Some("r1".into()),
        };
        history.ops.push(op(ALICE, 80, 85, release, Reply::Remaining(0)));
    });
    // The inbox was made while she asked: perhaps she waited for the one before.
    assert_in_order_after(|history| {
        history.calls.push(Call {
            made: true,
            ..call(2, 6, &[])
        });
    });
}

#[test]
fn inbox_made_before_does_not_matter() {
    let mut history = alice_overtaken_by_bob(20);
    history.ops[0].sent = 7_000;
    history.calls.push(Call {
        made: true,
        ..call(2, 6, &[])
    });
    assert_eq!(overtaken_waiters(&history).len(), 1);
}

/// A lease of 1000 ms, of which 400 remained in a reply that was made between 5000 and 5020 ms.
#[test]
fn lease_of_kept_answer_began_with_grant() {
    let answer = answer(ALICE, 5_000, 5_020, 400);
    assert_eq!(answer.granted_after(), 4_400_000);
    // What remained was rounded down.
    assert_eq!(answer.granted_before(), 4_421_000);
    assert_eq!(answer.safe_deadline(), 5_397_600);
}

#[test]
fn expired_answer_was_granted_at_any_time_before() {
    let answer = answer(ALICE, 5_000, 5_020, 0);
    assert_eq!(answer.granted_after(), 0);
    assert_eq!(answer.granted_before(), 4_021_000);
}

/// A client may send a request again before it reads that it was granted.
#[test]
fn repeated_request_keeps_fence_until_lease_expires() {
    let granted = |fence, sent_ms| {
        let reply = Reply::Granted {
            fence,
            holds: 1,
            lease_ms: LEASE_MS,
            waited_ms: 0,
        };
        op(ALICE, sent_ms, sent_ms + 5, Request::Acquire(acquire()), reply)
    };
    let repeated_at = |ms| {
        wrong_fences(&History {
            ops: vec![granted(1, 0), granted(2, ms)],
            ..History::default()
        })
        .len()
    };
    assert_eq!(repeated_at(500), 1);
    assert_eq!(repeated_at(1_500), 0);
}

/// Alice waits from 10 to 200 ms, bob is granted at 100 ms.
#[test]
fn stalled_lock_is_detected() {
    let stalls_longer_than = |longest_ms: Micros| {
        let longest_stall = Some(longest_ms * 1_000);
        let history = History {
            longest_stall,
            ..alice_overtaken_by_bob(0)
        };
        stalled_locks(&history).len()
    };
    assert_eq!(stalls_longer_than(99), 1, "from 100 to 200");
    assert_eq!(stalls_longer_than(100), 0);
}

#[test]
fn forgotten_request_is_detected() {
    let mut history = alice_overtaken_by_bob(0);
    assert!(forgotten_requests(&history).is_empty());
    history.forgotten.push(Forgotten {
        owner: ALICE.into(),
        key: "door".into(),
        sent: 0,
    });
    let found = forgotten_requests(&history);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].ops, [0]);
}

#[test]
fn leftover_inboxes_and_locks_are_detected() {
    let mut history = History::default();
    history.final_states.push(FinalState {
        port: 1,
        keys: 0,
        waiting: 0,
        inboxes: 1,
        crash: None,
    });
    assert_eq!(unclean_final_states(&history).len(), 1);
    history.never_free.push("door".into());
    assert_eq!(unclean_final_states(&history).len(), 2);
}
