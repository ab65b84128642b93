//! What GUARD runs, and what it does not.

use dlock_testkit::{Client, Cluster, Server, start, wait_for};
use redis::Value;

use super::{guard_of, guarded_by_alice};
use crate::fixtures::held_by_alice;

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

#[test]
fn commands_about_the_connection_are_refused() {
    let (_server, mut client, guard) = guarded_by_alice();
    for name in [
        "SELECT 1",
        "select 1",
        "READONLY",
        "readwrite",
        "ASKING",
        "WAIT 0 1",
        "WAITAOF 0 0 1",
    ] {
        let error = client.error(&format!("{guard} {name}"));
        assert!(error.contains("about the connection"), "{name}: {error}");
    }
    for name in [
        "AUTH x",
        "HELLO 3",
        "RESET",
        "QUIT",
        "CLIENT SETNAME x",
        "MULTI",
        "WATCH door",
        "SUBSCRIBE c",
        "MONITOR",
    ] {
        client.assert_error("ERR", &format!("{guard} {name}"));
    }
    let info: String = client.ask("CLIENT INFO");
    for state in [" name= ", " db=0 ", " multi=-1 ", " sub=0 ", " resp=2"] {
        assert!(info.contains(state), "{state}: {info}");
    }
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
fn errors_of_the_command_are_its_own() {
    let (_server, mut client, guard) = guarded_by_alice();
    client.ok("SET text value");
    for (command, error) in [
        ("LPUSH text x", "WRONGTYPE Operation against"),
        ("NONSENSE x", "ERR unknown command"),
        ("SET", "ERR wrong number of arguments for 'set' command"),
        ("INCR text", "ERR value is not an integer"),
        ("XREADGROUP GROUP g c STREAMS s >", "NOGROUP "),
        ("GET door", "WRONGTYPE "),
    ] {
        let actual = client.error(&format!("{guard} {command}"));
        assert!(actual.starts_with(error), "{command}: {actual}");
    }
    assert_eq!(client.stat("dlock_guards_refused"), 0);
    let count = client.stat("dlock_errors_err") + client.stat("dlock_errors_wrongtype");
    assert_eq!(count, 0);
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
fn command_may_remove_or_replace_the_lock_itself() {
    let commands = [
        "DEL door",
        "UNLINK door",
        "RENAME door away",
        "MOVE door 1",
        "SET door text",
        "PEXPIRE door 0",
        "FLUSHDB",
        "FLUSHALL ASYNC",
        "SWAPDB 0 1",
    ];
    for command in commands {
        let (mut server, mut client, guard) = guarded_by_alice();
        let _bob = server.waiter("door bob 60000 BLOCK 0");
        client.wait_for_queue("door", 1);
        client.ask::<Value>(&format!("{guard} {command}"));
        let lost = if command.starts_with("SET") {
            "NOTHELD"
        } else {
            wait_for("bob's grant", || client.owner("door").as_deref() == Some("bob"));
            "NOTOWNER"
        };
        client.assert_error(lost, &guard);
        server.assert_alive();
    }
}

#[test]
fn command_may_restore_another_lock_in_place_of_the_lock() {
    let (_server, mut client) = start();
    client.acquire("other carol 60000");
    let dump: Vec<u8> = client.ask("DUMP other");
    client.acquire("door alice 60000");
    let guard = guard_of(&mut client, "door", "alice");
    let words: Vec<&[u8]> = guard.split(' ').map(str::as_bytes).collect();
    client.ask_args::<Value>(&[&words[..], &[&b"RESTORE"[..], b"door", b"0", &dump, b"REPLACE"]].concat());
    assert_eq!(client.owner("door").as_deref(), Some("carol"));
    client.assert_error("NOTOWNER", &guard);
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
fn command_runs_in_the_database_of_the_caller() {
    let (_server, mut client) = held_by_alice();
    client.ok("SELECT 3");
    client.acquire("gate alice 60000");
    let guard = guard_of(&mut client, "gate", "alice");
    client.ok(&format!("{guard} SET data 3"));
    assert_eq!(client.ask::<i64>("GET data"), 3);
    client.ok("SELECT 0");
    client.assert_error("NOTHELD", &guard);
    assert!(!client.exists("data"));
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
