//! The cursor of DLOCK.GRANTS: an answer is kept until it is acknowledged, and no cursor ever comes again.

use std::collections::BTreeSet;

use dlock_testkit::{Client, Inbox, Server};

use super::held_with_inbox;

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
