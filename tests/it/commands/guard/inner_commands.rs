//! What GUARD runs, and what it does not.

use dlock_testkit::{Client, Cluster, Server, reply_bytes};
use redis::Value;

use super::guarded_by_alice;

/// The commands with their flags, subcommands as `name|subcommand`.
fn commands(client: &mut Client) -> Vec<(String, Vec<String>)> {
    let all: Vec<Value> = client.ask("COMMAND");
    let mut found = Vec::new();
    for command in all {
        let fields: Vec<Value> = redis::from_redis_value(command).expect("an array");
        let subcommands: Vec<Value> = redis::from_redis_value_ref(&fields[9]).expect("an array");
        for fields in std::iter::once(&fields).chain(&subcommands.iter().map(array).collect::<Vec<_>>()) {
            let name = redis::from_redis_value_ref(&fields[0]).expect("a name");
            let flags = redis::from_redis_value_ref(&fields[2]).expect("flags");
            found.push((name, flags));
        }
    }
    found
}

fn array(value: &Value) -> Vec<Value> {
    redis::from_redis_value_ref(value).expect("an array")
}

#[test]
fn commands_that_scripts_may_not_run_are_refused() {
    let (mut server, mut client, guard) = guarded_by_alice();
    let mut count = 0;
    for (name, flags) in commands(&mut client) {
        if !flags.contains(&"noscript".to_owned()) {
            continue;
        }
        // Enough arguments for the arity of most.
        for arguments in ["", " a", " a b", " a b c", " 1 a b c", " a b c d e"] {
            let command = format!("{guard} {}{arguments}", name.replace('|', " "));
            let error = client.error(&command);
            assert!(error.starts_with("ERR "), "{command}: {error}");
            assert!(!error.contains("script mode"), "{command}: {error}");
        }
        count += 1;
    }
    assert!(count > 50, "{count}");
    server.assert_alive();
    client.assert_sole_holder("door", "alice", client_fence(&guard), 1);
}

fn client_fence(guard: &str) -> u64 {
    let fence = guard.rsplit(' ').next().expect("the last word");
    fence.parse().expect("the fence")
}

/// What is left of the category, and does not depend on the connection or change it.
#[test]
fn no_other_command_of_the_connection_is_run() {
    let (_server, mut client, guard) = guarded_by_alice();
    let names: Vec<String> = client.ask("ACL CAT connection");
    for name in names {
        let command = name.replace('|', " ");
        let harmless = ["ping", "echo", "command"];
        if harmless.iter().any(|name| command.starts_with(name)) || command.ends_with(" help") {
            continue;
        }
        for arguments in ["", " 1", " 1 1", " on", " 1 1 1"] {
            let code = client.error_code(&format!("{guard} {command}{arguments}"));
            assert_eq!(code, "ERR", "{command}");
        }
    }
}

#[test]
fn name_with_zero_byte_is_refused() {
    let (_server, mut client, guard) = guarded_by_alice();
    for name in [&b"SELECT\0"[..], b"set\0", b"\0", b""] {
        let words: Vec<&[u8]> = guard.split(' ').map(str::as_bytes).collect();
        let code = client.error_code_args(&[&words[..], &[name, b"data", b"1"]].concat());
        assert_eq!(code, "ERR", "{name:?}");
    }
    assert!(!client.exists("data"));
}

#[test]
fn blocking_command_does_not_wait() {
    let (_server, mut client, guard) = guarded_by_alice();
    // Some servers refuse it, others answer as in a transaction.
    match client.call(&format!("{guard} BLPOP list 0")) {
        Ok(reply) => assert_eq!(reply, Value::Nil),
        Err(error) => assert_eq!(error.code(), Some("ERR")),
    }
}

#[test]
fn nested_guards_neither_recurse_nor_run() {
    assert_nested_guards_are_refused(Server::start());
}

#[test]
fn nested_guards_in_cluster_neither_recurse_nor_run() {
    assert_nested_guards_are_refused(Cluster::start(1).nodes.remove(0));
}

fn assert_nested_guards_are_refused(mut server: Server) {
    const LEVELS: usize = 100_000;
    let mut client = server.client();
    client.ok("ACL SETUSER guest on nopass +dlock.guard ~door");
    let fence = client.acquire("door alice 60000").fence.to_string();
    let level = ["DLOCK.GUARD", "door", "alice", &fence];
    let nested = (0..LEVELS).flat_map(|_| level).chain(["SET", "door", "1"]);
    let nested: Vec<&[u8]> = nested.map(str::as_bytes).collect();
    let keys = [&[&b"COMMAND"[..], b"GETKEYS"], &nested[..]].concat();
    assert_eq!(client.ask_args::<Vec<String>>(&keys), ["door"]);
    assert_eq!(client.error_code_args(&nested), "ERR");
    client.ok("AUTH guest any");
    assert_eq!(client.error_code_args(&nested), "ERR");
    let script = format!(
        "local a = {{}}; for i = 1, 1500 do for _, w in ipairs({{'DLOCK.GUARD', 'door', 'alice', '{fence}'}}) do a[#a + 1] = w end end; \
         return redis.pcall(unpack(a))"
    );
    let mut client = server.client();
    let code = client.error_code_args(&[b"EVAL", script.as_bytes(), b"1", b"door"]);
    assert_eq!(code, "ERR");
    let reply = client.ask::<Value>("TYPE door");
    assert_eq!(reply, Value::SimpleString("dist-lock".into()));
    server.assert_alive();
}

#[test]
fn guard_replies_in_protocol_of_caller() {
    let (server, mut client, guard) = guarded_by_alice();
    client.ask::<Value>("HSET hash field value");
    client.ask::<Value>("ZADD set 1.5 member");
    for (inner, resp2, resp3) in [
        (
            "HGETALL hash",
            "*2\r\n$5\r\nfield\r\n$5\r\nvalue\r\n",
            "%1\r\n$5\r\nfield\r\n$5\r\nvalue\r\n",
        ),
        ("ZSCORE set member", "$3\r\n1.5\r\n", ",1.5\r\n"),
        ("GET nothing", "$-1\r\n", "_\r\n"),
        ("ECHO text", "$4\r\ntext\r\n", "$4\r\ntext\r\n"),
        ("STRLEN hash", WRONG_TYPE, WRONG_TYPE),
    ] {
        let command = format!("{guard} {inner}");
        assert_eq!(reply_bytes(&server, 2, &command), resp2, "{inner}");
        assert_eq!(reply_bytes(&server, 3, &command), resp3, "{inner}");
    }
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
