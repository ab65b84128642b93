//! The cursor of DLOCK.GRANTS: an answer is kept until it is acknowledged, and no cursor ever comes again.

use std::collections::BTreeSet;

use dlock_testkit::{Client, Inbox, Server, pause, start};

use super::{held_with_inbox, shown};

/// Has an answer delivered to an inbox: a timeout of request `id`.
#[track_caller]
fn answer(client: &mut Client, inbox: &str, id: &str) {
    let answers = client.stat("dlock_inbox_answers");
    client.enqueue(&format!("door bob 60000 QUEUE {inbox} 0 REQID {id}"));
    client.release(&format!("door bob REQID {id}"));
    assert_eq!(client.stat("dlock_inbox_answers"), answers + 1);
}

#[track_caller]
fn assert_noinbox(inbox: &mut Inbox, cursor: u64) {
    let error = inbox.error_at(cursor, "BLOCK 60000");
    assert!(error.starts_with("NOINBOX "), "{cursor}: {error}");
}

#[test]
fn repeated_call_replies_same_answers_and_perhaps_more() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let cursor = inbox.cursor();
    answer(&mut client, "inbox", "r1");
    assert_eq!(shown(&inbox.call("").answers), ["withdrawn r1 door bob"]);
    // The reply was lost, and with it the connection.
    inbox.reconnect(&server);
    let again = inbox.call_at(cursor, "BLOCK 60000").answers;
    assert_eq!(shown(&again), ["withdrawn r1 door bob"]);
    answer(&mut client, "inbox", "r2");
    let more = inbox.call_at(cursor, "BLOCK 60000").answers;
    assert_eq!(shown(&more), ["withdrawn r1 door bob", "withdrawn r2 door bob"]);
    inbox.assert_empty();
}

#[test]
fn acknowledged_answers_do_not_come_again() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    for n in 0..5 {
        answer(&mut client, "inbox", &format!("r{n}"));
        let expected = format!("withdrawn r{n} door bob");
        assert_eq!(shown(&inbox.call("").answers), [expected]);
    }
    inbox.assert_empty();
    assert_eq!(client.stat("dlock_inbox_answers"), 0);
}

/// A reply was lost, the call was repeated, and then the first reply arrives after all.
#[test]
fn cursor_of_earlier_reply_acknowledges_what_that_reply_carried() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    let start = inbox.cursor();
    answer(&mut client, "inbox", "r1");
    let first = inbox.call("").cursor;
    answer(&mut client, "inbox", "r2");
    let second = inbox.call_at(start, "");
    assert_eq!(second.answers.len(), 2);
    let third = inbox.call_at(first, "");
    assert_eq!(shown(&third.answers), ["withdrawn r2 door bob"]);
    assert_noinbox(&mut inbox, start);
    assert_eq!(inbox.call_at(second.cursor, "").answers, []);
    assert_noinbox(&mut inbox, first);
}

#[test]
fn acknowledged_cursor_is_refused_and_changes_nothing() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    let old = inbox.cursor();
    answer(&mut client, "inbox", "r1");
    inbox.call("");
    answer(&mut client, "inbox", "r2");
    let last = inbox.cursor();
    assert_eq!(inbox.call("").answers.len(), 1);
    assert_noinbox(&mut inbox, old);
    let again = inbox.call_at(last, "").answers;
    assert_eq!(shown(&again), ["withdrawn r2 door bob"], "it is kept");
}

#[test]
fn cursor_that_was_never_given_out_is_refused_and_acknowledges_nothing() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    for n in 1..=3 {
        answer(&mut client, "inbox", &format!("r{n}"));
    }
    let before = inbox.cursor();
    let after = inbox.call("").cursor;
    let end = (1 << 53) - 1;
    for cursor in [
        1,
        before - 1,
        after + 1,
        after + 1_000,
        after + 1_000_000_000,
        end,
    ] {
        assert_noinbox(&mut inbox, cursor);
    }
    assert_eq!(inbox.call_at(before, "").answers.len(), 3);
    assert_eq!(client.stat("dlock_inbox_answers"), 3);
}

#[test]
fn cursor_between_two_replies_is_refused() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    for n in 1..=3 {
        answer(&mut client, "inbox", &format!("r{n}"));
    }
    let before = inbox.cursor();
    let after = inbox.call("").cursor;
    for cursor in before + 1..after.min(before + 100) {
        assert_noinbox(&mut inbox, cursor);
    }
}

#[test]
fn cursor_of_another_inbox_is_refused() {
    let (server, mut client, mut inbox) = held_with_inbox();
    let mut other = Inbox::make(&server, "other");
    // The cursors of both alternate.
    let mut others = vec![other.cursor()];
    let before = inbox.cursor();
    for n in 1..=3 {
        answer(&mut client, "inbox", &format!("a{n}"));
        inbox.call_at(before, "");
        answer(&mut client, "other", &format!("b{n}"));
        others.push(other.call("").cursor);
    }
    answer(&mut client, "inbox", "a4");
    let last = inbox.call_at(before, "").cursor;
    for cursor in others {
        assert_noinbox(&mut inbox, cursor);
    }
    assert_eq!(inbox.call_at(before, "").answers.len(), 4);
    assert_eq!(inbox.call_at(last, "").answers, []);
}

#[test]
fn cursors_of_all_inboxes_differ() {
    let (server, mut client, _inbox) = held_with_inbox();
    let mut seen = BTreeSet::new();
    let mut inboxes: Vec<Inbox> = (0..5)
        .map(|n| Inbox::make(&server, &format!("inbox{n}")))
        .collect();
    for inbox in &inboxes {
        assert!(seen.insert(inbox.cursor()));
    }
    for round in 0..5 {
        for inbox in &mut inboxes {
            answer(&mut client, inbox.name(), &format!("r{round}"));
            let cursor = inbox.call("").cursor;
            assert!(seen.insert(cursor), "{cursor} came before");
        }
    }
}

#[test]
fn cursor_of_ended_inbox_is_refused_by_its_successor() {
    let (server, mut client, mut inbox) = held_with_inbox();
    answer(&mut client, "inbox", "r1");
    let (first, second) = (inbox.cursor(), inbox.call("").cursor);
    inbox.call("TTL 0");
    client.wait_for_inboxes(0);
    let mut next = Inbox::make(&server, "inbox");
    assert!(next.cursor() > second, "{} {second}", next.cursor());
    for cursor in [first, second, inbox.cursor()] {
        assert_noinbox(&mut next, cursor);
    }
    next.assert_empty();
}

#[test]
fn cursors_rise_across_restarts() {
    let mut server = Server::start();
    let mut last = 0;
    for _ in 0..3 {
        let mut client = server.client();
        client.acquire("door alice 60000");
        let mut inbox = Inbox::make(&server, "inbox");
        assert!(inbox.cursor() > last, "{} {last}", inbox.cursor());
        for n in 0..20 {
            answer(&mut client, "inbox", &format!("r{n}"));
            inbox.call("");
        }
        last = inbox.cursor();
        assert!(last < 1 << 53);
        server.crash_and_restart();
        inbox.reconnect(&server);
        let error = inbox.error("BLOCK 60000");
        assert!(error.starts_with("NOINBOX "), "{error}");
        let mut next = Inbox::make(&server, "inbox");
        assert_noinbox(&mut next, last);
        last = next.cursor();
        server.crash_and_restart();
    }
}

#[test]
fn answers_are_kept_over_lost_connections() {
    let (server, mut client, mut inbox) = held_with_inbox();
    for n in 0..10 {
        answer(&mut client, "inbox", &format!("r{n}"));
        inbox.send("");
        // The reply is lost, and comes again over the next connection.
        inbox.reconnect(&server);
    }
    assert_eq!(inbox.take(10).len(), 10);
    inbox.assert_empty();
}

#[test]
fn empty_replies_acknowledge_and_keep_inbox_usable() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    for n in 0..3 {
        for options in ["", "BLOCK 1", "BLOCK 5"] {
            assert_eq!(inbox.call(options).answers, []);
        }
        answer(&mut client, "inbox", &format!("r{n}"));
        inbox.take(1);
    }
}

#[test]
fn remaining_lease_is_told_as_of_each_reply() {
    let (_server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    let cursor = inbox.cursor();
    client.release("door alice");
    let first = inbox.call("").answers[0].grant();
    pause(300);
    let again = inbox.call_at(cursor, "").answers[0].grant();
    assert!(again.lease_ms + 300 <= first.lease_ms + 1, "{first:?} {again:?}");
    assert_eq!((again.fence, again.holds), (first.fence, first.holds));
    assert_eq!(again.queued_ms, first.queued_ms);
    let left = client.lock("door").holder("bob").lease_ms;
    assert!(left <= again.lease_ms);
}

#[test]
fn cursor_0_after_end_makes_inbox_anew() {
    let (server, mut client) = start();
    for _ in 0..3 {
        let mut inbox = Inbox::make(&server, "inbox");
        inbox.assert_empty();
        inbox.call("TTL 0");
        client.wait_for_inboxes(0);
    }
    assert_eq!(client.stat("dlock_inboxes_ended"), 3);
}
