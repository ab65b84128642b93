//! The commands that only a primary or an AOF may send.

use dlock_testkit::{Client, ReplicationStream, Server, start};
use redis::Value;

/// A server, a client, and a change that would grant the free lock `door` to alice.
fn start_with_change() -> (Server, Client, Vec<u8>) {
    let (server, mut client) = start();
    client.acquire("first alice 60000");
    let mut stream = ReplicationStream::attach(&server);
    client.acquire("door alice 60000");
    client.release("door alice");
    let change = stream.take_raw()[0][2].clone();
    (server, client, change)
}

#[track_caller]
fn assert_unchanged(client: &mut Client, fence_known: i64) {
    assert!(!client.exists("door"));
    assert_eq!(client.stat("dlock_fence_known"), fence_known);
    assert_eq!(client.stat("dlock_grace_left_ms"), 0);
    client.acquire("door bob 60000");
}

#[test]
fn internal_commands_are_refused_to_clients() {
    let (_server, mut client, change) = start_with_change();
    let known = client.stat("dlock_fence_known");
    assert_eq!(client.error_code_args(&[b"DLOCK.APPLY", b"door", &change]), "ERR");
    client.assert_error("ERR", &format!("DLOCK.SYNC {} 60000", known + 1000));
    assert_unchanged(&mut client, known);
}

#[test]
fn internal_commands_are_refused_in_multi() {
    let (_server, mut client, change) = start_with_change();
    let known = client.stat("dlock_fence_known");
    let apply = [&b"DLOCK.APPLY"[..], b"door", &change];
    let sync = format!("DLOCK.SYNC {} 60000", known + 1000);
    client.ok("MULTI");
    client.ask_args::<Value>(&apply);
    client.ask::<Value>(&sync);
    let Value::Array(replies) = client.pipeline([vec![&b"EXEC"[..]]]).remove(0) else {
        panic!("two replies")
    };
    assert_eq!(replies.len(), 2);
    let is_expected = replies.iter().all(|reply| matches!(reply, Value::ServerError(_)));
    assert!(is_expected, "{replies:?}");
    assert_unchanged(&mut client, known);
}

#[test]
fn internal_commands_are_refused_in_scripts() {
    let (_server, mut client, change) = start_with_change();
    let known = client.stat("dlock_fence_known");
    let apply = b"return redis.call('DLOCK.APPLY', KEYS[1], ARGV[1])";
    client.error_code_args(&[b"EVAL", apply, b"1", b"door", &change]);
    let sync = b"return redis.call('DLOCK.SYNC', ARGV[1], 60000)";
    client.error_code_args(&[b"EVAL", sync, b"0", (known + 1000).to_string().as_bytes()]);
    assert_unchanged(&mut client, known);
}

#[test]
fn malformed_internal_commands_are_refused() {
    let (_server, mut client, _) = start_with_change();
    let known = client.stat("dlock_fence_known");
    for command in [
        "DLOCK.APPLY",
        "DLOCK.APPLY door",
        "DLOCK.APPLY door x",
        "DLOCK.SYNC",
        "DLOCK.SYNC x y",
        "DLOCK.SYNC 1 2 3",
    ] {
        client.assert_error("ERR", command);
    }
    assert_unchanged(&mut client, known);
}

#[test]
fn internal_commands_are_refused_on_writable_replica() {
    let (server, _, change) = start_with_change();
    let replica = server.replica_with("replica-read-only no");
    let mut client = replica.client();
    client.error_code_args(&[b"DLOCK.APPLY", b"door", &change]);
    client.error_code("DLOCK.SYNC 1 60000");
    assert!(!client.exists("door"));
}
