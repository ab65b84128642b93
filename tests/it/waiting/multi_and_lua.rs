//! Transactions, scripts and functions cannot wait: there BLOCK behaves as if it were absent.

use dlock_testkit::{Client, Grant, Server, Waiter, start, start_with};
use redis::Value;

const CALL: &[u8] = b"return redis.call('DLOCK.ACQUIRE', KEYS[1], unpack(ARGV))";
const LIBRARY: &[u8] = b"#!lua name=locks\n\
    redis.register_function('acquire', function(keys, args) \
    return redis.call('DLOCK.ACQUIRE', keys[1], unpack(args)) end)";

const WAYS: [Way; 3] = [Way::Transaction, Way::Script, Way::Function];

#[derive(Clone, Copy, Debug)]
enum Way {
    Transaction,
    Script,
    Function,
}

impl Way {
    /// The reply to `DLOCK.ACQUIRE <args>` sent this way. Errors are values.
    #[track_caller]
    fn acquire(self, client: &mut Client, args: &str) -> Value {
        let words: Vec<&[u8]> = args.split_whitespace().map(str::as_bytes).collect();
        let front: &[&[u8]] = match self {
            Self::Transaction => {
                let replies = client.batch(&["MULTI", &format!("DLOCK.ACQUIRE {args}"), "EXEC"]);
                let Value::Array(mut replies) = replies[2].clone() else {
                    panic!("not the reply to EXEC: {replies:?}");
                };
                return replies.remove(0);
            }
            Self::Script => &[b"EVAL", CALL, b"1"],
            Self::Function => &[b"FCALL", b"acquire", b"1"],
        };
        client.pipeline([[front, &words].concat()]).remove(0)
    }
}

fn start_with_library() -> (Server, Client) {
    let (server, mut client) = start();
    client.ask_args::<String>(&[b"FUNCTION", b"LOAD", LIBRARY]);
    (server, client)
}

#[test]
fn block_on_free_lock_is_granted() {
    let (_server, mut client) = start_with_library();
    for way in WAYS {
        let reply = way.acquire(&mut client, "door alice 60000 BLOCK 0");
        let grant = Grant::parse(reply).expect("it is free");
        assert_eq!((grant.holds, grant.waited_ms), (1, 0), "{way:?}");
        client.release("door alice");
    }
}

#[test]
fn block_on_held_lock_replies_null() {
    let (_server, mut client) = start_with_library();
    client.acquire("door alice 60000");
    for way in WAYS {
        for block in ["BLOCK 0", "BLOCK 1", "BLOCK 60000 REQID r1", "LIMIT 3 BLOCK 0"] {
            let reply = way.acquire(&mut client, &format!("door bob 60000 {block}"));
            assert_eq!(reply, Value::Nil, "{way:?} {block}");
        }
        assert_eq!(client.waiting("door"), 0, "{way:?}");
    }
    assert_eq!(client.stat("dlock_waiters"), 0);
    assert_eq!(client.server_info("clients", "blocked_clients"), "0");
    client.release("door alice");
    assert!(!client.exists("door"), "no client waited");
}

#[test]
fn block_in_script_keeps_queue() {
    for way in WAYS {
        let (server, mut client) = start_with_library();
        client.acquire("door alice 60000 SHARED");
        let mut writer = server.waiter("door writer 60000 BLOCK 0");
        let mut reader = server.waiter("door reader 60000 SHARED BLOCK 0");
        let reply = way.acquire(&mut client, "door bob 60000 SHARED BLOCK 0");
        assert_eq!(reply, Value::Nil, "{way:?}: no overtaking");
        assert_eq!(client.queue("door"), ["writer", "reader"], "{way:?}");
        let reply = way.acquire(&mut client, "door alice 60000 SHARED BLOCK 0");
        assert_eq!(Grant::parse(reply).expect("a re-entry").holds, 2, "{way:?}");
        client.release("door alice ALL");
        writer.granted();
        reader.assert_waiting();
        client.release("door writer");
        reader.granted();
    }
}

#[test]
fn release_in_transaction_grants_to_queue_first() {
    let (server, mut client) = start_with_library();
    client.acquire("door alice 60000");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    let replies = client.batch(&[
        "MULTI",
        "DLOCK.RELEASE door alice",
        "DLOCK.ACQUIRE door bob 60000 BLOCK 0",
        "DLOCK.OWNER door",
        "EXEC",
    ]);
    let expected = Value::Array(vec![
        Value::Int(0),
        Value::Nil,
        Value::BulkString(b"carol".to_vec()),
    ]);
    assert_eq!(replies[4], expected);
    carol.granted();
    assert_eq!(client.waiting("door"), 0);
}

#[test]
fn release_in_script_grants_to_queue_first() {
    let (server, mut client) = start_with_library();
    client.acquire("door alice 60000");
    let mut carol = server.waiter("door carol 60000 BLOCK 0");
    let script: &[u8] = b"redis.call('DLOCK.RELEASE', KEYS[1], 'alice') \
        redis.call('DLOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'BLOCK', 0) \
        return redis.call('DLOCK.OWNER', KEYS[1])";
    let owner: String = client.ask_args(&[b"EVAL", script, b"1", b"door"]);
    assert_eq!(owner, "carol");
    carol.granted();
}

#[test]
fn deadlock_and_full_queue_reply_null() {
    let (server, mut client) = start_with_library();
    client.acquire("door alice 60000");
    client.acquire("gate bob 60000");
    let _bob = server.waiter("door bob 60000 BLOCK 0");
    client.config_set("dlock.max-waiters-per-lock", "1");
    for way in WAYS {
        for request in ["gate alice 60000 BLOCK 0", "door carol 60000 BLOCK 0"] {
            assert_eq!(way.acquire(&mut client, request), Value::Nil, "{way:?} {request}");
        }
    }
    assert_eq!(client.stat("dlock_errors_deadlock"), 0);
    assert_eq!(client.stat("dlock_errors_queuefull"), 0);
}

#[test]
fn bad_timeout_is_refused() {
    let (_server, mut client) = start_with_library();
    for way in WAYS {
        for block in ["BLOCK", "BLOCK x", "BLOCK -1", "BLOCK 0 BLOCK 0"] {
            let reply = way.acquire(&mut client, &format!("door alice 60000 {block}"));
            let is_expected = matches!(reply, Value::ServerError(_));
            assert!(is_expected, "{way:?} {block}: {reply:?}");
        }
    }
    assert!(!client.exists("door"));
}

#[test]
fn block_in_grace_is_refused() {
    let (_server, mut client) = start_with("dlock.startup-grace-ms 60000");
    for way in [Way::Transaction, Way::Script] {
        let reply = way.acquire(&mut client, "door alice 60000 BLOCK 0");
        let Value::ServerError(error) = reply else {
            panic!("{way:?}: {reply:?}");
        };
        assert_eq!(error.code(), "GRACE", "{way:?}");
    }
    assert_eq!(client.waiting("door"), 0);
}

#[test]
fn connection_can_block_after_transaction() {
    let (server, mut client) = start_with_library();
    client.acquire("door alice 60000");
    let mut waiter = Waiter::connect(&server);
    waiter.send("MULTI\r\nDLOCK.ACQUIRE door bob 60000 BLOCK 0\r\nEXEC");
    for _ in 0..3 {
        waiter.next_reply();
    }
    waiter.acquire("door bob 60000 BLOCK 0");
    client.wait_for_queue("door", 1);
    client.release("door alice");
    waiter.granted();
}
