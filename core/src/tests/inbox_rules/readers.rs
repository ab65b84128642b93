//! Calls of GRANTS: who reads an inbox, and what wakes it.

use super::{SELF, held, queued, shown};
use crate::inbox::Received;
use crate::wire::{Caller, Error};

#[test]
fn waiting_call_is_woken_by_the_first_answer() {
    let (mut server, cursor) = queued();
    let call = server.grants_waits(&format!("inbox {cursor} BLOCK 2000"));
    server.pass(30_000);
    server.released("RELEASE a alice");
    assert_eq!(server.woken, [call]);
    let reply = server.reply_to(call);
    assert_eq!(
        (shown(&reply), reply.waited_ms),
        (vec!["granted r1 a bob".into()], 30)
    );
}

#[test]
fn call_with_answers_at_hand_does_not_wait() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    let reply = server.grants(&format!("inbox {cursor} BLOCK 2000"));
    assert_eq!((reply.waited_ms, reply.answers.len()), (0, 1));
}

/// Its reply has the cursor for the next call.
#[test]
fn call_that_makes_the_inbox_does_not_wait() {
    let (mut server, _) = held();
    assert!(server.grants("other 0 BLOCK 2000").answers.is_empty());
}

#[test]
fn call_whose_time_is_over_gets_its_own_cursor_and_no_answers() {
    let (mut server, cursor) = queued();
    let call = server.grants_waits(&format!("inbox {cursor} BLOCK 2000"));
    server.pass(1_999_999);
    assert_eq!(server.run_due(), []);
    server.pass(1);
    assert_eq!(server.run_due(), [call]);
    let reply = server.reply_to(call);
    assert_eq!(
        (reply.cursor, reply.waited_ms, shown(&reply)),
        (cursor, 2_000, vec![])
    );
}

#[test]
fn second_reader_takes_over_from_the_first() {
    let (mut server, cursor) = queued();
    let args = format!("inbox {cursor} BLOCK 2000");
    let first = server.grants_waits(&args);
    let Ok(Received::Waits { call, former }) = server.grants_from(SELF, &args) else {
        panic!("the second reader does not wait");
    };
    assert_eq!(former, Some(first));
    assert!(server.replies_to(first).is_none(), "the first gets no answers");
    server.released("RELEASE a alice");
    assert_eq!(server.woken, [call]);
}

/// A reply was about to be written, and its client was killed.
#[test]
fn answer_for_a_reader_that_is_gone_stays_for_the_next() {
    let (mut server, cursor) = queued();
    let call = server.grants_waits(&format!("inbox {cursor} BLOCK 2000"));
    server.released("RELEASE a alice");
    server.lose_reader(call);
    assert_eq!(server.next_answers(cursor), ["granted r1 a bob"]);
}

/// The first reply was lost.
#[test]
fn cursor_0_is_accepted_again_until_a_cursor_was_used() {
    let (mut server, cursor) = queued();
    server.released("RELEASE a alice");
    assert_eq!(shown(&server.grants("inbox 0")), ["granted r1 a bob"]);
    assert_eq!(server.next_answers(cursor), ["granted r1 a bob"]);
}

#[test]
fn cursor_0_of_an_inbox_that_is_read_is_rejected() {
    let (mut server, cursor) = held();
    server.grants(&format!("inbox {cursor}"));
    assert_eq!(server.grants_error("inbox 0"), Error::BusyInbox);
}

#[test]
fn cursor_of_an_inbox_that_does_not_exist_is_rejected_and_makes_none() {
    let (mut server, cursor) = held();
    assert_eq!(server.grants_error(&format!("other {cursor}")), Error::NoInbox);
    assert!(!server.has_inbox("other"));
}

#[test]
fn inbox_is_read_by_no_other_user_or_database() {
    let (mut server, cursor) = held();
    for caller in [Caller { user: b"eve", ..SELF }, Caller { db: 1, ..SELF }] {
        let received = server.grants_from(caller, &format!("inbox {cursor}"));
        assert_eq!(received.err(), Some(Error::ForeignInbox));
    }
}
