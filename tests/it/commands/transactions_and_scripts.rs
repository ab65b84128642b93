//! Transactions, Lua scripts and functions.

use dlock_testkit::{ReplicationStream, Server, start};
use redis::Value;

use crate::fixtures::held_by_alice;

#[test]
fn transaction_runs_all_commands() {
    let (_server, mut client) = start();
    client.ok("MULTI");
    for command in [
        "DLOCK.ACQUIRE door alice 60000",
        "DLOCK.ACQUIRE door alice 60000 REQID r1",
        "DLOCK.ACQUIRE door bob 60000",
        "DLOCK.EXTEND door alice 90000",
        "DLOCK.OWNER door",
        "DLOCK.RELEASE door alice ALL",
    ] {
        assert_eq!(client.ask::<String>(command), "QUEUED", "{command}");
    }
    let replies: Vec<Value> = client.ask("EXEC");
    let holds = |reply: &Value| match reply {
        Value::Array(numbers) => numbers[1].clone(),
        other => other.clone(),
    };
    let expected = [
        Value::Int(1),
        Value::Int(2),
        Value::Nil,
        Value::Int(90_000),
        Value::BulkString(b"alice".to_vec()),
        Value::Int(0),
    ];
    assert_eq!(replies.iter().map(holds).collect::<Vec<_>>(), expected);
}

#[test]
fn transaction_is_replicated_by_effects() {
    let (server, mut client) = start();
    client.acquire("first alice 60000");
    let mut stream = ReplicationStream::attach(&server);
    client.batch(&[
        "MULTI",
        "DLOCK.ACQUIRE door alice 60000",
        "DLOCK.ACQUIRE door bob 60000",
        "DLOCK.EXTEND door alice 1",
        "DLOCK.OWNER door",
        "DLOCK.RELEASE first alice",
        "EXEC",
    ]);
    let expected = [
        "MULTI",
        "DLOCK.APPLY door <change>",
        "DLOCK.APPLY first <change>",
        "EXEC",
    ];
    assert_eq!(stream.take(), expected);
}

#[test]
fn script_runs_all_commands() {
    let (_server, mut client) = start();
    let script = b"
        local granted = redis.call('DLOCK.ACQUIRE', KEYS[1], 'alice', 60000)
        local refused = redis.call('DLOCK.ACQUIRE', KEYS[1], 'bob', 60000)
        local error = redis.pcall('DLOCK.RELEASE', KEYS[1], 'bob')
        local extended = redis.call('DLOCK.EXTEND', KEYS[1], 'alice', 90000, 'FENCE', granted[1])
        local owner = redis.call('DLOCK.OWNER', KEYS[1])
        local left = redis.call('DLOCK.RELEASE', KEYS[1], 'alice', 'FENCE', granted[1])
        local free = redis.call('DLOCK.OWNER', KEYS[1])
        return {granted[2], tostring(refused), error['err'], extended, owner, left, tostring(free)}
    ";
    let (holds, refused, error, extended, owner, left, free): (
        u64,
        String,
        String,
        u64,
        String,
        u64,
        String,
    ) = client.ask_args(&[b"EVAL", script, b"1", b"door"]);
    assert_eq!(
        (
            holds,
            refused.as_str(),
            extended,
            owner.as_str(),
            left,
            free.as_str()
        ),
        (1, "false", 90_000, "alice", 0, "false")
    );
    assert!(error.starts_with("NOTOWNER "), "{error}");
    assert!(!client.exists("door"));
}

#[test]
fn error_in_script_keeps_code() {
    let (_server, mut client) = start();
    let code = client.error_code_args(&[
        b"EVAL",
        b"return redis.call('DLOCK.RELEASE', 'door', 'alice')",
        b"1",
        b"door",
    ]);
    assert_eq!(code, "NOTHELD");
}

#[test]
fn script_is_replicated_by_effects() {
    let (server, mut client) = start();
    client.acquire("first alice 60000");
    let mut stream = ReplicationStream::attach(&server);
    client.ask_args::<Value>(&[
        b"EVAL",
        b"redis.call('DLOCK.ACQUIRE', KEYS[1], 'alice', 60000); redis.call('DLOCK.ACQUIRE', KEYS[1], 'bob', 60000)",
        b"1",
        b"door",
    ]);
    assert_eq!(stream.take(), ["DLOCK.APPLY door <change>"]);
}

#[test]
fn read_only_script_reads_but_cannot_acquire() {
    let (_server, mut client) = held_by_alice();
    let owner: String = client.ask_args(&[
        b"EVAL_RO",
        b"return redis.call('DLOCK.OWNER', KEYS[1])",
        b"1",
        b"door",
    ]);
    assert_eq!(owner, "alice");
    client.error_code_args(&[
        b"EVAL_RO",
        b"return redis.call('DLOCK.ACQUIRE', KEYS[1], 'bob', 1000, 'SHARED')",
        b"1",
        b"free",
    ]);
    assert!(!client.exists("free"));
}

#[test]
fn function_runs_all_commands() {
    let server = Server::start();
    let replica = server.replica();
    let mut client = server.client();
    let library = b"#!lua name=locks
        redis.register_function('take', function(keys, args)
            local granted = redis.call('DLOCK.ACQUIRE', keys[1], args[1], 60000)
            return granted and granted[2]
        end)
        redis.register_function{function_name='holder', flags={'no-writes'}, callback=function(keys)
            return redis.call('DLOCK.OWNER', keys[1])
        end}";
    client.ask_args::<Value>(&[b"FUNCTION", b"LOAD", library]);
    assert_eq!(client.ask::<i64>("FCALL take 1 door alice"), 1);
    assert_eq!(client.ask::<i64>("FCALL take 1 door alice"), 2);
    assert_eq!(client.ask::<Option<i64>>("FCALL take 1 door bob"), None);
    assert_eq!(client.ask::<String>("FCALL_RO holder 1 door"), "alice");
    client.sync();
    let standing = replica.client().lock("door").standing();
    assert_eq!(standing, client.lock("door").standing());
}
