//! COMMAND GETKEYS and GETKEYSANDFLAGS of a GUARD.

use dlock_testkit::{Client, Cluster, Server, skip, start};
use redis::Value;

use super::has_key_reporting;

use crate::fixtures::is_redis_8_2;

/// The keys and their flags, as `key flag flag`.
fn keys_and_flags(client: &mut Client, command: &str) -> Vec<String> {
    let keys: Vec<(String, Vec<String>)> = client.ask(&format!("COMMAND GETKEYSANDFLAGS {command}"));
    keys.into_iter()
        .map(|(key, flags)| format!("{key} {}", flags.join(" ")))
        .collect()
}

const GUARD: &str = "DLOCK.GUARD door alice 1";

#[test]
fn lock_is_read_and_keys_of_command_have_their_own_flags() {
    let (_server, mut client) = start();
    if !has_key_reporting(&mut client) {
        return;
    }
    if is_redis_8_2(&mut client) {
        return skip("the server knows the key of the lock only");
    }
    let rows: [(&str, &[&str]); 12] = [
        ("", &[]),
        ("SET data 1", &["data OW update"]),
        ("GET data", &["data RO access"]),
        ("INCR data", &["data RW access update"]),
        ("RENAME a b", &["a RW access delete", "b OW update"]),
        ("DEL a b a", &["a RM delete", "b RM delete", "a RM delete"]),
        ("PING", &[]),
        ("NONSENSE a", &[]),
        ("GET", &[]),
        ("GET a b", &[]),
        ("SPUBLISH channel text", &[]),
        ("XREAD STREAMS s 0", &["s RO access"]),
    ];
    for (command, keys) in rows {
        let mut expected = vec!["door RO access".to_owned()];
        expected.extend(keys.iter().map(ToString::to_string));
        let shown = keys_and_flags(&mut client, &format!("{GUARD} {command}"));
        assert_eq!(shown, expected, "{command}");
    }
}

#[test]
fn commands_of_locks_are_not_looked_into() {
    let (_server, mut client) = start();
    for inner in ["DLOCK.GUARD", "dlock.guard", "DLock.Owner", "DLOCK.NONSENSE"] {
        let keys = keys_and_flags(&mut client, &format!("{GUARD} {inner} gate bob 1 SET data 1"));
        assert_eq!(keys, ["door RO access"], "{inner}");
    }
}

#[test]
fn keys_of_long_command_are_reported_in_order() {
    let (_server, mut client) = start();
    if !has_key_reporting(&mut client) {
        return;
    }
    if is_redis_8_2(&mut client) {
        return skip("the server knows the key of the lock only");
    }
    let pairs: Vec<String> = (0..2_000).map(|n| format!("k{n} k{}", n + 1)).collect();
    let expected: Vec<String> = (0..2_000).map(|n| format!("k{n} OW update")).collect();
    let reported = keys_and_flags(&mut client, &format!("{GUARD} MSET {}", pairs.join(" ")));
    assert_eq!(reported[1..], expected);
    assert_eq!(reported[0], "door RO access");
}

#[test]
fn reporting_of_keys_frees_its_memory() {
    let (_server, mut client) = start();
    for (keys, calls) in [
        (1, 5_000),
        (6, 5_000),
        (7, 5_000),
        (20, 5_000),
        (256, 1_000),
        (257, 1_000),
    ] {
        let names: Vec<String> = (0..keys).map(|n| format!("k{n}")).collect();
        let command = format!("COMMAND GETKEYS {GUARD} DEL {}", names.join(" "));
        let batch = vec![command; 100];
        let mut run = |calls: usize| {
            (0..calls / 100).for_each(|_| _ = client.batch(&batch));
            client.server_number::<usize>("memory", "used_memory")
        };
        let (before, after) = (run(200), run(calls));
        // A position takes 4 bytes, its flags as many.
        let is_expected = after < before + calls * keys.max(8) * 4;
        assert!(is_expected, "{keys} keys: {before} {after}");
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
    let of_keys = [&[&b"COMMAND"[..], b"GETKEYS"], &nested[..]].concat();
    assert_eq!(client.ask_args::<Vec<String>>(&of_keys), ["door"]);
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
