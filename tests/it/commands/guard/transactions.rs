//! GUARD in MULTI, scripts and functions, and WATCH on its lock.

use dlock_testkit::{Client, start};
use redis::Value;

use super::{guard_of, guarded_by_alice};

#[test]
fn each_guard_of_transaction_is_checked_for_itself() {
    let (_server, mut client, guard) = guarded_by_alice();
    let replies = client.batch(&[
        "MULTI",
        &format!("{guard} SET first 1"),
        "DLOCK.GUARD door alice 1 SET refused 1",
        "DLOCK.RELEASE door alice",
        &format!("{guard} SET refused 1"),
        "SET last 1",
        "EXEC",
    ]);
    let outcomes = codes(&replies[6]);
    assert_eq!(outcomes, ["ok", "STALE", "ok", "NOTHELD", "ok"]);
    assert!(client.exists("first") && client.exists("last") && !client.exists("refused"));
}

/// The error code of each reply of a transaction, or `ok`.
fn codes(exec: &Value) -> Vec<String> {
    let Value::Array(replies) = exec else {
        panic!("EXEC replied {exec:?}")
    };
    let code = |reply: &Value| match reply {
        Value::ServerError(error) => error.code().to_owned(),
        _ => "ok".to_owned(),
    };
    replies.iter().map(code).collect()
}

#[test]
fn lease_that_expires_within_transaction_refuses_the_rest() {
    let (_server, mut client) = start();
    client.acquire("door alice 3000");
    let guard = guard_of(&mut client, "door", "alice");
    let replies = client.batch(&[
        "MULTI",
        &format!("{guard} SET first 1"),
        "DEBUG SLEEP 3.1",
        &format!("{guard} SET late 1"),
        "EXEC",
    ]);
    assert_eq!(codes(&replies[4]), ["ok", "ok", "NOTHELD"]);
    assert!(client.exists("first") && !client.exists("late"));
}

#[test]
fn script_that_guards_first_writes_nothing_without_the_lock() {
    let (_server, mut client, guard) = guarded_by_alice();
    let script = b"
        redis.call('DLOCK.GUARD', KEYS[1], ARGV[1], ARGV[2])
        redis.call('SET', KEYS[2], ARGV[3])
        return redis.call('DLOCK.RELEASE', KEYS[1], ARGV[1], 'FENCE', ARGV[2])
    ";
    let fence = guard.rsplit(' ').next().expect("a word").to_owned();
    let mut run = |owner: &str, fence: &str, value: &str| {
        let words: [&[u8]; 8] = [
            b"EVAL",
            script,
            b"2",
            b"door",
            b"data",
            owner.as_bytes(),
            fence.as_bytes(),
            value.as_bytes(),
        ];
        client
            .call_args(&words)
            .map_err(|error| error.code().unwrap_or_default().to_owned())
    };
    assert_eq!(run("bob", &fence, "bob"), Err("NOTOWNER".to_owned()));
    assert_eq!(run("alice", "1", "stale"), Err("STALE".to_owned()));
    assert_eq!(run("alice", &fence, "done"), Ok(Value::Int(0)));
    assert_eq!(run("alice", &fence, "late"), Err("NOTHELD".to_owned()));
    assert_eq!(client.ask::<String>("GET data"), "done");
}

#[test]
fn function_runs_guarded_commands_and_sees_errors() {
    let (_server, mut client, guard) = guarded_by_alice();
    let library = b"#!lua name=fenced
        redis.register_function('add', function(keys, args)
            local reply = redis.pcall('DLOCK.GUARD', keys[1], args[1], args[2], 'INCRBY', keys[2], args[3])
            if type(reply) == 'table' and reply.err then return reply.err end
            return reply
        end)
        redis.register_function{function_name='look', flags={'no-writes'}, callback=function(keys, args)
            return redis.call('DLOCK.GUARD', keys[1], args[1], args[2], 'GET', keys[2])
        end}";
    client.ask_args::<Value>(&[b"FUNCTION", b"LOAD", library]);
    let fence = guard.rsplit(' ').next().expect("a word").to_owned();
    let reply = client.ask::<i64>(&format!("FCALL add 2 door data alice {fence} 5"));
    assert_eq!(reply, 5);
    let error: String = client.ask("FCALL add 2 door data alice 1 5");
    assert!(error.starts_with("STALE "), "{error}");
    client.error_code(&format!("FCALL look 2 door data alice {fence}"));
    client.error_code(&format!("FCALL_RO look 2 door data alice {fence}"));
    assert_eq!(client.ask::<i64>("GET data"), 5);
}

#[test]
fn watched_lock_makes_transaction_all_or_nothing() {
    let (server, mut admin, guard) = guarded_by_alice();
    let transfer = |client: &mut Client| {
        client.ok("MULTI");
        client.ask::<String>("DECRBY from 5");
        client.ask::<String>("INCRBY to 5");
        client.ask::<Option<Vec<i64>>>("EXEC")
    };
    let mut client = server.client();
    client.ok("WATCH door");
    client.ask::<u64>(&guard);
    admin.extend("door alice 90000");
    assert_eq!(transfer(&mut client), Some(vec![-5, 5]), "a renewal does no harm");

    client.ok("WATCH door");
    client.ask::<u64>(&guard);
    admin.release("door alice");
    assert_eq!(transfer(&mut client), None);
    assert_eq!(admin.ask::<i64>("GET to"), 5);
}

/// WATCH sees the removal of an expired holder, not the moment of expiry: the transaction may come before that.
#[test]
fn transaction_after_expiry_is_aborted_once_another_owner_has_the_lock() {
    let (server, mut admin) = start();
    admin.acquire("door alice 3000");
    let guard = guard_of(&mut admin, "door", "alice");
    let mut client = server.client();
    client.ok("WATCH door");
    client.ask::<u64>(&guard);
    admin.ask::<Value>("DLOCK.ACQUIRE door bob 60000 BLOCK 0");
    let replies = client.batch(&["MULTI", "SET data late", "EXEC"]);
    assert_eq!(replies[2], Value::Nil);
    assert!(!admin.exists("data"));
}
