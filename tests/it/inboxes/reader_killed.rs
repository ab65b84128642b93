//! Readers that are killed, unblocked or closed, also in the same step as a grant: the next call with the same cursor
//! gets all answers.

use dlock_testkit::{Client, Delivery, Inbox, Server, skip, wait_for};
use redis::Value;

use super::{enqueue_many, held_with_inbox, shown};

/// Bob waits for `door` through an inbox with a blocked reader, whose client id is returned, too.
fn with_blocked_reader() -> (Server, Client, Inbox, i64) {
    let (server, mut client, mut inbox) = held_with_inbox();
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    let id = inbox.connection().id();
    inbox.block(&mut client);
    (server, client, inbox, id)
}

/// Bob's grant must be delivered by a call with the same cursor.
#[track_caller]
fn assert_answer_is_kept(server: &Server, client: &mut Client, inbox: &mut Inbox, cursor: u64) {
    inbox.reconnect(server);
    let answers = inbox.call_at(cursor, "BLOCK 60000").answers;
    assert_eq!(shown(&answers), ["granted r1 door bob"]);
    let grant = answers[0].grant();
    client.assert_sole_holder("door", "bob", grant.fence, 1);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
    inbox.assert_empty();
}

#[test]
fn reader_killed_in_same_step_as_grant_loses_nothing() {
    for in_transaction in [false, true] {
        for grant_first in [true, false] {
            let (server, mut client, mut inbox, id) = with_blocked_reader();
            let cursor = inbox.cursor();
            let (release, kill) = ("DLOCK.RELEASE door alice", &*format!("CLIENT KILL ID {id}"));
            let mut commands = if grant_first {
                vec![release, kill]
            } else {
                vec![kill, release]
            };
            if in_transaction {
                commands.insert(0, "MULTI");
                commands.push("EXEC");
            }
            client.batch(&commands);
            if let Some(reply) = inbox.try_receive() {
                panic!("the connection of a killed client is closed: {reply:?}");
            }
            assert_answer_is_kept(&server, &mut client, &mut inbox, cursor);
        }
    }
}

#[test]
fn reader_unblocked_without_answers_keeps_its_connection_and_inbox() {
    let (server, mut client, mut inbox, id) = with_blocked_reader();
    if !server.supports_client_unblock() {
        return skip("CLIENT UNBLOCK of waiters is disabled on Redis 7.2");
    }
    for how in ["", "TIMEOUT"] {
        assert_eq!(client.ask::<i64>(&format!("CLIENT UNBLOCK {id} {how}")), 1);
        assert_eq!(inbox.receive().answers, []);
        inbox.block(&mut client);
    }
    assert_eq!(client.ask::<i64>(&format!("CLIENT UNBLOCK {id} ERROR")), 1);
    let error = inbox.receive_error();
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    assert_eq!(client.queue("door"), ["bob"]);
    client.release("door alice");
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
}

/// Redis 7.0 may drop the reply, or close the connection.
#[test]
fn reader_unblocked_in_same_step_as_grant_loses_nothing() {
    for how in ["TIMEOUT", "ERROR"] {
        for in_transaction in [false, true] {
            let (server, mut client, mut inbox, id) = with_blocked_reader();
            if !server.supports_client_unblock() {
                return skip("CLIENT UNBLOCK of waiters is disabled on Redis 7.2");
            }
            let cursor = inbox.cursor();
            let unblock = format!("CLIENT UNBLOCK {id} {how}");
            let commands = ["DLOCK.RELEASE door alice", &unblock];
            if in_transaction {
                client.batch(&[&["MULTI"], &commands[..], &["EXEC"]].concat());
            } else {
                client.batch(&commands);
            }
            assert_answer_is_kept(&server, &mut client, &mut inbox, cursor);
        }
    }
}

#[test]
fn reader_replaced_in_same_step_as_grant_loses_nothing() {
    let (server, mut client, mut inbox, _) = with_blocked_reader();
    let cursor = inbox.cursor();
    let replies = client.batch(&[
        "DLOCK.RELEASE door alice".to_owned(),
        format!("DLOCK.GRANTS inbox {cursor}"),
    ]);
    let delivery = Delivery::parse(&replies[1]);
    assert_eq!(shown(&delivery.answers), ["granted r1 door bob"]);
    // The first reader was replaced, or gets the answer as well: nobody has acknowledged it.
    match inbox.try_receive().expect("an open connection") {
        Ok(delivery) => assert_eq!(shown(&delivery.answers), ["granted r1 door bob"]),
        Err(error) => assert!(error.starts_with("UNBLOCKED "), "{error}"),
    }
    assert_answer_is_kept(&server, &mut client, &mut inbox, cursor);
}

/// The output buffer limit closes it: nobody has the reply, and all of it comes again.
#[test]
fn reader_closed_over_reply_of_many_answers_gets_all_by_its_cursor() {
    // In one step.
    const ANSWERS: usize = 128;
    let (server, mut client, mut inbox) = held_with_inbox();
    let key = "door".repeat(50);
    client.acquire(&format!("{key} alice 60000"));
    enqueue_many(&mut client, &key, ANSWERS, "SHARED");
    let limit = |client: &mut Client, limit: &[u8]| {
        let words: [&[u8]; 4] = [b"CONFIG", b"SET", b"client-output-buffer-limit", limit];
        client.ask_args::<Value>(&words);
    };
    let cursor = inbox.cursor();
    for blocked in [true, false] {
        limit(&mut client, b"normal 20000 0 0");
        if blocked {
            inbox.block(&mut client);
            client.release(&format!("{key} alice"));
        } else {
            inbox.send_at(cursor, "");
        }
        assert_eq!(inbox.try_receive(), None, "the server closes the connection");
        limit(&mut client, b"normal 0 0 0");
        inbox.reconnect(&server);
        let answers = inbox.call_at(cursor, "").answers;
        assert_eq!(answers.len(), ANSWERS);
    }
    assert_eq!(client.lock(&key).holders.len(), ANSWERS);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn reader_evicted_for_its_memory_loses_nothing() {
    for grant_first in [true, false] {
        let (server, mut client, mut inbox, id) = with_blocked_reader();
        client.ok("CLIENT NO-EVICT ON");
        let cursor = inbox.cursor();
        // The limit is at least 128 kB. A part of a command that never ends makes the reader the largest client.
        let part = format!("*2\r\n$4\r\nECHO\r\n$1000000\r\n{}", "x".repeat(400_000));
        inbox.connection().send(&part);
        wait_for("the part to arrive", || {
            let reader: String = client.ask(&format!("CLIENT LIST ID {id}"));
            let field = reader.split(' ').find_map(|field| field.strip_prefix("qbuf="));
            field.is_some_and(|bytes| bytes.parse::<usize>().is_ok_and(|bytes| bytes >= 400_000))
        });
        let (release, evict) = ("DLOCK.RELEASE door alice", "CONFIG SET maxmemory-clients 1");
        client.batch(&if grant_first {
            [release, evict]
        } else {
            [evict, release]
        });
        wait_for("the eviction of the reader", || {
            client.server_number::<u64>("stats", "evicted_clients") > 0
        });
        client.config_set("maxmemory-clients", "0");
        assert_answer_is_kept(&server, &mut client, &mut inbox, cursor);
    }
}
