//! QUEUE and DLOCK.GRANTS in transactions, scripts and functions.

use std::time::{Duration, Instant};

use dlock_testkit::{Client, Delivery, Grant, Inbox, Server, assert_elapsed_at_most, start_with};
use redis::Value;

use super::{held_with_inbox, shown};

const CALL: &[u8] = b"return redis.call(unpack(ARGV))";
const LIBRARY: &[u8] = b"#!lua name=any\n\
    redis.register_function('any', function(keys, args) return redis.call(unpack(args)) end)";

const WAYS: [Way; 3] = [Way::Transaction, Way::Script, Way::Function];

#[derive(Clone, Copy, Debug)]
enum Way {
    Transaction,
    Script,
    Function,
}

impl Way {
    /// The reply to a command sent this way. Errors are values.
    #[track_caller]
    fn run(self, client: &mut Client, command: &str) -> Value {
        let words: Vec<&[u8]> = command.split_whitespace().map(str::as_bytes).collect();
        let front: &[&[u8]] = match self {
            Self::Transaction => {
                let replies = client.batch(&["MULTI", command, "EXEC"]);
                let Value::Array(mut replies) = replies[2].clone() else {
                    panic!("not the reply to EXEC: {replies:?}");
                };
                return replies.remove(0);
            }
            Self::Script => &[b"EVAL", CALL, b"0"],
            Self::Function => &[b"FCALL", b"any", b"0"],
        };
        client.pipeline([[front, &words].concat()]).remove(0)
    }

    #[track_caller]
    fn error(self, client: &mut Client, command: &str) -> String {
        match self.run(client, command) {
            Value::ServerError(error) => error.code().to_owned(),
            other => panic!("{self:?} {command}: {other:?}"),
        }
    }
}

fn with_library() -> (Server, Client, Inbox) {
    let (server, mut client, inbox) = held_with_inbox();
    client.ask_args::<String>(&[b"FUNCTION", b"LOAD", LIBRARY]);
    (server, client, inbox)
}

#[test]
fn queue_in_script_waits_and_is_answered() {
    let (_server, mut client, mut inbox) = with_library();
    for (n, way) in (0..).zip(WAYS) {
        let request = format!("DLOCK.ACQUIRE door owner{n} 60000 QUEUE inbox 0 REQID r{n}");
        let reply = way.run(&mut client, &request);
        assert_eq!(reply, Value::Array(vec![Value::Int(n)]), "{way:?}");
    }
    client.release("door alice");
    for n in 0..WAYS.len() {
        let expected = format!("granted r{n} door owner{n}");
        assert_eq!(shown(&inbox.take(1)), [expected]);
        client.release(&format!("door owner{n}"));
    }
}

#[test]
fn queue_in_script_times_out() {
    let (_server, mut client, mut inbox) = with_library();
    for way in WAYS {
        way.run(
            &mut client,
            "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 50 REQID r1",
        );
        assert_eq!(shown(&inbox.take(1)), ["timeout r1 door bob"], "{way:?}");
    }
}

#[test]
fn queue_in_script_on_free_lock_is_granted() {
    let (_server, mut client, _inbox) = with_library();
    for way in WAYS {
        let reply = way.run(&mut client, "DLOCK.ACQUIRE free bob 60000 QUEUE inbox 0 REQID r1");
        let grant = Grant::parse(reply).expect("it is free");
        assert_eq!((grant.holds, grant.waited_ms), (1, 0), "{way:?}");
        client.release("free bob");
    }
}

#[test]
fn queue_in_script_is_refused_as_outside() {
    let (_server, mut client, _inbox) = with_library();
    client.acquire("gate bob 60000");
    client.enqueue("door bob 60000 QUEUE inbox 0 REQID r1");
    client.config_set("dlock.max-waiters-per-lock", "1");
    for way in WAYS {
        for (request, code) in [
            ("gate alice 60000 QUEUE inbox 0 REQID r1", "DEADLOCK"),
            ("door carol 60000 QUEUE inbox 0 REQID r1", "QUEUEFULL"),
            ("gate carol 60000 QUEUE other 0 REQID r1", "NOINBOX"),
            ("gate carol 60000 QUEUE inbox 0", "ERR"),
        ] {
            let error = way.error(&mut client, &format!("DLOCK.ACQUIRE {request}"));
            assert_eq!(error, code, "{way:?} {request}");
        }
    }
    assert_eq!(client.stat("dlock_waiters"), 1);
}

#[test]
fn queue_in_script_waits_in_grace() {
    let (server, mut client) = start_with("dlock.startup-grace-ms 4000");
    client.ask_args::<String>(&[b"FUNCTION", b"LOAD", LIBRARY]);
    let mut inbox = Inbox::make(&server, "inbox");
    for (n, way) in (0..).zip(WAYS) {
        let request = format!("DLOCK.ACQUIRE door{n} bob 60000 QUEUE inbox 0 REQID r1");
        let reply = way.run(&mut client, &request);
        assert_eq!(reply, Value::Array(vec![Value::Int(0)]), "{way:?}");
    }
    assert_eq!(inbox.take(3).len(), 3);
}

#[test]
fn release_in_transaction_answers_queued_request_of_same_transaction() {
    let (_server, mut client, mut inbox) = with_library();
    client.batch(&[
        "MULTI",
        "DLOCK.ACQUIRE door bob 60000 QUEUE inbox 0 REQID r1",
        "DLOCK.RELEASE door alice",
        "EXEC",
    ]);
    assert_eq!(shown(&inbox.take(1)), ["granted r1 door bob"]);
}

#[test]
fn grants_in_script_makes_inbox() {
    let (_server, mut client, _inbox) = with_library();
    for (n, way) in (0..).zip(WAYS) {
        let reply = way.run(&mut client, &format!("DLOCK.GRANTS made{n} 0 TTL 60000"));
        assert_eq!(Delivery::parse(&reply).answers, [], "{way:?}");
    }
    assert_eq!(client.stat("dlock_inboxes"), 4);
}

#[test]
fn grants_in_script_replies_answers_and_acknowledges() {
    let (_server, mut client, inbox) = with_library();
    let mut cursor = inbox.cursor();
    for (n, way) in (0..).zip(WAYS) {
        client.acquire(&format!("gate{n} alice 60000"));
        client.enqueue(&format!("gate{n} bob 60000 QUEUE inbox 0 REQID r1"));
        client.release(&format!("gate{n} alice"));
        let reply = way.run(&mut client, &format!("DLOCK.GRANTS inbox {cursor} BLOCK 60000"));
        let delivery = Delivery::parse(&reply);
        let expected = format!("granted r1 gate{n} bob");
        assert_eq!(shown(&delivery.answers), [expected], "{way:?}");
        cursor = delivery.cursor;
    }
}

#[test]
fn grants_in_script_never_waits() {
    let (_server, mut client, inbox) = with_library();
    let mut cursor = inbox.cursor();
    for way in WAYS {
        let start = Instant::now();
        let reply = way.run(&mut client, &format!("DLOCK.GRANTS inbox {cursor} BLOCK 60000"));
        assert_elapsed_at_most(Duration::ZERO, start);
        let delivery = Delivery::parse(&reply);
        assert_eq!((delivery.waited_ms, delivery.answers), (0, vec![]), "{way:?}");
        cursor = delivery.cursor;
    }
    assert_eq!(client.server_info("clients", "blocked_clients"), "0");
}

#[test]
fn grants_in_script_is_refused_as_outside() {
    let (_server, mut client, mut inbox) = with_library();
    inbox.assert_empty();
    for way in WAYS {
        for (call, code) in [
            ("inbox 0", "BUSYINBOX"),
            ("other 1", "NOINBOX"),
            ("inbox 1", "NOINBOX"),
            ("inbox x", "ERR"),
        ] {
            let error = way.error(&mut client, &format!("DLOCK.GRANTS {call}"));
            assert_eq!(error, code, "{way:?} {call}");
        }
    }
}

/// It writes nothing.
#[test]
fn grants_in_read_only_script_is_served() {
    let (_server, mut client, inbox) = with_library();
    let cursor = inbox.cursor().to_string();
    let words: [&[u8]; 6] = [
        b"EVAL_RO",
        CALL,
        b"0",
        b"DLOCK.GRANTS",
        b"inbox",
        cursor.as_bytes(),
    ];
    let reply: Value = client.ask_args(&words);
    assert_eq!(Delivery::parse(&reply).answers, []);
}

#[test]
fn grants_in_transaction_ends_blocked_call() {
    let (server, mut client, mut inbox) = with_library();
    for way in WAYS {
        inbox.block(&mut client);
        let reply = way.run(&mut client, &format!("DLOCK.GRANTS inbox {}", inbox.cursor()));
        let cursor = Delivery::parse(&reply).cursor;
        let error = inbox.receive_error();
        assert!(error.starts_with("UNBLOCKED "), "{way:?}: {error}");
        inbox.reconnect(&server);
        inbox.call_at(cursor, "");
    }
}
