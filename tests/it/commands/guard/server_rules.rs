//! GUARD is a write for the server, whatever it runs; memory is asked of the command alone.

use std::fs;

use dlock_testkit::{ReplicationStream, Waiter, start, start_with, wait_for};
use redis::Value;

use super::{guard_of, guarded_by_alice};
use crate::fixtures::{AOF, assert_refused, is_redis_8_2, start_with_replica};

/// A bare check, a read and a write.
const INNER: [&str; 3] = ["", " GET data", " SET data 2"];

#[test]
fn guard_on_replica_is_refused_as_readonly() {
    let (_primary, replica, mut client, mut on_replica) = start_with_replica();
    client.acquire("door alice 60000");
    client.sync();
    let guard = guard_of(&mut on_replica, "door", "alice");
    for writable in ["yes", "no"] {
        replica.client().config_set("replica-read-only", writable);
        for inner in INNER {
            on_replica.assert_error("READONLY", &format!("{guard}{inner}"));
        }
    }
    assert!(!on_replica.exists("data"));
}

#[test]
fn guard_without_enough_replicas_is_refused_as_noreplicas() {
    let (_server, mut client, guard) = guarded_by_alice();
    client.config_set("min-replicas-to-write", "1");
    for inner in INNER {
        client.assert_error("NOREPLICAS", &format!("{guard}{inner}"));
    }
    client.config_set("min-replicas-to-write", "0");
    client.ok(&format!("{guard} SET data 1"));
}

#[test]
fn guard_after_failed_snapshot_is_refused_as_misconf() {
    let (server, mut client) = start_with("save 3600 1000000\ndbfilename obstacle");
    client.acquire("door alice 60000");
    let guard = guard_of(&mut client, "door", "alice");
    let obstacle = server.directory().join("obstacle");
    fs::create_dir(&obstacle).expect("the directory of the server is writable");
    client.ask::<Value>("BGSAVE");
    wait_for("a failed snapshot", || {
        client.server_info("persistence", "rdb_last_bgsave_status") == "err"
    });
    for inner in INNER {
        client.assert_error("MISCONF", &format!("{guard}{inner}"));
    }
}

#[test]
fn guard_with_full_memory_refuses_only_commands_that_need_memory() {
    let (_server, mut client, guard) = guarded_by_alice();
    client.ok("SET data 1");
    client.config_set("maxmemory", "1");
    client.assert_error("OOM", &format!("{guard} SET data 2"));
    client.assert_error("OOM", &format!("{guard} INCR data"));
    client.assert_error("STALE", "DLOCK.GUARD door alice 1 SET data 2");
    assert!(client.ask::<u64>(&guard) > 0);
    assert_eq!(client.ask::<i64>(&format!("{guard} GET data")), 1);
    assert_eq!(client.ask::<i64>(&format!("{guard} DEL data")), 1);
    assert!(!client.exists("data"));
}

#[test]
fn guard_waits_for_end_of_client_pause() {
    let (server, mut client, guard) = guarded_by_alice();
    for inner in INNER {
        let mut guarded = server.client();
        client.pause_writes_after(&[]);
        guarded.send(&format!("{guard}{inner}"));
        wait_for("the postponed GUARD", || {
            client.server_info("clients", "blocked_clients") == "1"
        });
        assert!(!client.exists("data"));
        client.ok("CLIENT UNPAUSE");
        guarded.connection().recv_response().expect("a reply");
        wait_for("the reply", || {
            client.server_info("clients", "blocked_clients") == "0"
        });
        client.ask::<Value>("DEL data");
    }
}

#[test]
fn paused_guard_is_checked_after_the_pause() {
    let (server, mut client) = start();
    client.acquire("door alice 3000");
    let guard = guard_of(&mut client, "door", "alice");
    let mut guarded = Waiter::connect(&server);
    client.pause_writes_after(&[]);
    guarded.send(&format!("{guard} SET data late"));
    client.wait_for_lease_end("door", "alice");
    client.ok("CLIENT UNPAUSE");
    assert_refused(&mut guarded, "NOTHELD");
    assert!(!client.exists("data"));
}

#[test]
fn log_and_replica_hold_only_the_command() {
    let (mut server, mut client) = start_with(AOF);
    client.acquire("door alice 60000");
    let guard = guard_of(&mut client, "door", "alice");
    let mut stream = ReplicationStream::attach(&server);
    client.ok(&format!("{guard} SET data 1"));
    client.ask::<u64>(&guard);
    client.ask::<i64>(&format!("{guard} GET data"));
    client.assert_error("STALE", "DLOCK.GUARD door alice 1 SET data late");
    client.assert_error("WRONGTYPE", &format!("{guard} LPUSH data late"));
    client.batch(&[
        "MULTI",
        &format!("{guard} INCR data"),
        &format!("{guard} INCR data"),
        "EXEC",
    ]);
    client.ask::<i64>(&format!("{guard} DEL door"));
    let expected = [
        "SET data 1",
        "MULTI",
        "INCR data",
        "INCR data",
        "EXEC",
        "DEL door",
    ];
    assert_eq!(stream.take(), expected);
    server.crash_and_restart();
    let mut client = server.client();
    assert_eq!(client.ask::<i64>("GET data"), 3);
    assert!(!client.exists("door"));
}

/// The server shares the argument between the two commands. Valkey 8.1 and Redis 8.2 and later store a copy of a value
/// that is shared.
#[test]
fn large_argument_is_not_copied_for_the_command() {
    const MIB: usize = 1 << 20;
    const SIZE: usize = 64 * MIB;
    let peak = |guarded: bool| {
        let (_server, mut client, guard) = guarded_by_alice();
        let value = vec![b'x'; SIZE];
        let words: Vec<&[u8]> = guard.split(' ').map(str::as_bytes).filter(|_| guarded).collect();
        let command = [&words[..], &[&b"SET"[..], b"data", &value]].concat();
        client.ask_args::<Value>(&command);
        assert_eq!(client.ask::<usize>("STRLEN data"), SIZE);
        let peak = client.server_info("memory", "used_memory_peak");
        let valkey = client.server_info("server", "valkey_version");
        let valkey = valkey.split('.').filter_map(|number| number.parse().ok());
        let valkey: Vec<u32> = valkey.collect();
        let copies_shared = valkey >= vec![8, 1] || is_redis_8_2(&mut client);
        (peak.parse::<usize>().expect("a number"), copies_shared)
    };
    let ((plain, copies_shared), (guarded, _)) = (peak(false), peak(true));
    println!(
        "peak with SET {} MiB, with GUARD SET {} MiB",
        plain / MIB,
        guarded / MIB
    );
    // Strings grow with some room to spare.
    let copies = if copies_shared { SIZE * 5 / 4 } else { 0 };
    assert!(guarded < plain + copies + 2 * MIB, "{plain} {guarded}");
}
