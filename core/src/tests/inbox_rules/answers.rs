//! What becomes of requests that wait, and how long answers stay.

use super::{held, only_grant, queued, shown};
use crate::testing::Server;
use crate::wire::Error;

#[test]
fn queued_request_is_granted_with_its_own_lease_and_waited_ms() {
    let (mut server, cursor) = held();
    assert_eq!(server.queued("ACQUIRE a bob 30 QUEUE inbox 0 REQID r1"), 0);
    server.pass(40_000);
    server.released("RELEASE a alice");
    let bob = only_grant(&server.grants(&format!("inbox {cursor}")));
    assert_eq!((bob.holds, bob.lease_ms, bob.waited_ms), (1, 30, 40));
    assert_eq!(bob.fence, server.lock("a").holders()[0].fence());
}

#[test]
fn timed_out_request_is_answered_timeout() {
    let (mut server, cursor) = held();
    server.queued("ACQUIRE a bob 60000 QUEUE inbox 10 REQID r1");
    server.pass(10_000);
    server.run_due();
    assert_eq!(server.next_answers(cursor), ["timeout r1 a bob"]);
}

#[test]
fn requests_of_a_lock_that_has_left_are_answered_with_the_error() {
    let (mut server, cursor) = queued();
    server.drain(0);
    assert_eq!(
        server.next_answers(cursor),
        ["MOVED r1 a bob", "MOVED r2 a carol"]
    );
}

#[test]
fn answers_of_several_locks_come_as_they_were_decided() {
    let (mut server, cursor) = queued();
    server.queued("ACQUIRE b dave 60000 QUEUE inbox 0 REQID r3");
    server.released("RELEASE b alice");
    server.released("RELEASE a alice");
    assert_eq!(
        server.next_answers(cursor),
        ["granted r3 b dave", "granted r1 a bob"]
    );
}

#[test]
fn call_repeated_after_lost_reply_gets_the_same_answers_and_cursor() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    let call = format!("inbox {cursor}");
    let (first, again) = (server.grants(&call), server.grants(&call));
    assert_eq!(shown(&first), ["granted r1 a bob"]);
    assert_eq!((shown(&again), again.cursor), (shown(&first), first.cursor));
}

#[test]
fn call_repeated_later_gets_later_answers_too() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    assert_eq!(server.next_answers(cursor), ["granted r1 a bob"]);
    server.released("RELEASE a bob REQID r1");
    assert_eq!(
        server.next_answers(cursor),
        ["granted r1 a bob", "granted r2 a carol"]
    );
}

#[test]
fn acknowledged_answer_is_gone() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    let first = server.grants(&format!("inbox {cursor}")).cursor;
    assert_eq!(server.state().inboxes.answers(), 1);
    assert!(server.next_answers(first).is_empty());
    assert_eq!(server.state().inboxes.answers(), 0);
}

/// An answer came between the reply and its acknowledgement.
#[test]
fn acknowledged_reply_takes_no_later_answer_with_it() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    let first = server.grants(&format!("inbox {cursor}")).cursor;
    server.released("RELEASE a bob REQID r1");
    assert_eq!(server.next_answers(first), ["granted r2 a carol"]);
}

#[test]
fn cursor_before_the_acknowledged_one_is_rejected() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    let first = server.grants(&format!("inbox {cursor}")).cursor;
    server.grants(&format!("inbox {first}"));
    assert_eq!(server.grants_error(&format!("inbox {cursor}")), Error::NoInbox);
}

/// It would acknowledge the first of two answers, which no reply ended with.
#[test]
fn cursor_within_a_reply_is_rejected_and_acknowledges_nothing() {
    let (mut server, cursor) = queued();
    server.drain(0);
    let both = server.grants(&format!("inbox {cursor}")).cursor;
    assert_eq!(
        server.grants_error(&format!("inbox {}", both - 1)),
        Error::NoInbox
    );
    assert_eq!(server.state().inboxes.answers(), 2);
}

#[test]
fn lease_in_an_answer_is_what_remains_when_it_is_told() {
    let (mut server, cursor) = held();
    server.queued("ACQUIRE a bob 30 QUEUE inbox 0 REQID r1");
    server.released("RELEASE a alice");
    let call = format!("inbox {cursor}");
    for (passed_ms, left_ms) in [(0, 30), (10, 20), (20, 0), (1, 0)] {
        server.pass(passed_ms * 1_000);
        assert_eq!(only_grant(&server.grants(&call)).lease_ms, left_ms);
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of transitions")]
fn reply_carries_1000_answers_and_the_next_one_the_rest() {
    let (mut server, cursor) = held();
    for n in 0..1_001 {
        server.queued(&format!(
            "ACQUIRE a reader{n} 60000 SHARED QUEUE inbox 0 REQID r{n}"
        ));
    }
    server.released("RELEASE a alice");
    server.process_due();
    let first = server.grants(&format!("inbox {cursor}"));
    assert_eq!(first.answers.len(), 1_000);
    assert_eq!(server.next_answers(first.cursor), ["granted r1000 a reader1000"]);
}

/// Each answer repeats the key.
#[test]
fn reply_of_long_names_is_bounded_in_bytes() {
    const KEY_BYTES: usize = 100 << 10;
    let key = "k".repeat(KEY_BYTES);
    let mut server = Server::with(&[&key]);
    server.granted(&format!("ACQUIRE {key} alice 60000 REQID r0"));
    let mut cursor = server.grants("inbox 0").cursor;
    for n in 0..7 {
        server.queued(&format!(
            "ACQUIRE {key} bob{n} 60000 SHARED QUEUE inbox 0 REQID r{n}"
        ));
    }
    server.released(&format!("RELEASE {key} alice"));
    let mut answers = Vec::new();
    for _ in 0..3 {
        let reply = server.grants(&format!("inbox {cursor}"));
        cursor = reply.cursor;
        answers.push(reply.answers.len());
    }
    assert_eq!(answers, [3, 3, 1]);
    assert!(server.next_answers(cursor).is_empty());
}

#[test]
fn reply_carries_one_answer_of_any_length() {
    let key = "k".repeat(1 << 20);
    let mut server = Server::with(&[&key]);
    server.granted(&format!("ACQUIRE {key} alice 60000 REQID r0"));
    let cursor = server.grants("inbox 0").cursor;
    for n in 0..2 {
        server.queued(&format!(
            "ACQUIRE {key} bob{n} 60000 SHARED QUEUE inbox 0 REQID r{n}"
        ));
    }
    server.released(&format!("RELEASE {key} alice"));
    let first = server.grants(&format!("inbox {cursor}"));
    let second = server.grants(&format!("inbox {}", first.cursor));
    assert_eq!((first.answers.len(), second.answers.len()), (1, 1));
}

/// So a late call with the cursor of an inbox that has ended is never mistaken for one of its successor.
#[test]
fn cursors_of_a_new_inbox_are_above_those_of_the_ended_one() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    let last = server.grants(&format!("inbox {cursor} TTL 0")).cursor;
    server.run_due();
    assert!(server.grants("inbox 0").cursor > last);
    assert_eq!(server.grants_error(&format!("inbox {last}")), Error::NoInbox);
}
