//! DEL, RENAME, MOVE, SWAPDB, FLUSHALL and others on a lock.

use dlock_testkit::{Client, Events, pause, start, start_with, wait_for};
use redis::Value;

use crate::fixtures::{held_by_alice, start_with_replica};

const FLUSHES: [&str; 4] = ["FLUSHDB SYNC", "FLUSHDB ASYNC", "FLUSHALL SYNC", "FLUSHALL ASYNC"];

#[test]
fn removed_lock_is_free_and_next_fence_is_larger() {
    let (_server, mut client) = start();
    let breaks = [
        "DEL door",
        "UNLINK door",
        "PEXPIRE door 0",
        "RENAME door away",
        "MOVE door 1",
    ];
    for command in breaks.into_iter().chain(FLUSHES) {
        let fence = client.acquire("door alice 60000 SHARED").fence;
        client.acquire("door bob 60000 SHARED");
        client.ask::<Value>(command);
        assert_eq!(client.owner("door"), None, "{command}");
        client.assert_error("NOTHELD", "DLOCK.RELEASE door alice");
        client.assert_error("NOTHELD", "DLOCK.EXTEND door bob 60000");
        let next = client.acquire("door carol 60000");
        assert!(next.fence > fence + 1 && next.holds == 1, "{command}: {next:?}");
        client.ok("FLUSHALL");
    }
}

#[test]
fn overwritten_lock_is_refused_as_wrongtype() {
    let (_server, mut client) = start();
    client.ask::<Value>("RPUSH list 1 2");
    for command in [
        "SET door text",
        "SORT list STORE door",
        "BITOP NOT door door2",
        "RENAME list door",
    ] {
        client.acquire("door alice 200");
        client.ok("SET door2 text");
        client.ask::<Value>(command);
        client.assert_error("WRONGTYPE", "DLOCK.RELEASE door alice");
        client.assert_error("WRONGTYPE", "DLOCK.ACQUIRE door bob 60000");
        // The sweep finds no lock there and leaves the key alone.
        pause(400);
        assert!(client.exists("door"), "{command}");
        client.ask::<i64>("DEL door");
    }
}

#[test]
fn lease_of_removed_lock_does_not_expire_its_successor() {
    let (server, mut client) = start_with("notify-keyspace-events Ed");
    let mut events = Events::watch(&server);
    client.batch(&[
        "DLOCK.ACQUIRE door alice 200",
        "DEL door",
        "DLOCK.ACQUIRE door bob 60000",
    ]);
    client.batch(&[
        "DLOCK.ACQUIRE a alice 200",
        "DLOCK.ACQUIRE b bob 60000",
        "RENAME b a",
    ]);
    events.take();
    pause(500);
    assert_eq!(client.lock("door").owners(), ["bob"]);
    assert_eq!(client.lock("a").owners(), ["bob"]);
    assert!(events.take().is_empty(), "no holder expired");
}

#[test]
fn renamed_lock_is_held_under_new_name() {
    let (_server, mut client) = start();
    let fence = client.acquire("door alice 60000").fence;
    client.acquire("gate bob 60000");
    client.ok("RENAME door gate");
    client.assert_sole_holder("gate", "alice", fence, 1);
    client.assert_error("NOTOWNER", "DLOCK.RELEASE gate bob");
    assert_eq!(client.acquire("gate alice 60000").fence, fence);
    assert_eq!(client.release("gate alice ALL"), 0);
    assert!(client.acquire("gate bob 60000").fence > fence);
}

#[test]
fn moved_lock_is_held_in_new_database() {
    let (_server, mut client) = start();
    let fence = client.acquire("door alice 60000").fence;
    assert_eq!(client.ask::<i64>("MOVE door 1"), 1);
    assert_eq!(client.owner("door"), None);
    client.ok("SELECT 1");
    client.assert_sole_holder("door", "alice", fence, 1);
    assert_eq!(client.release("door alice"), 0);
}

#[test]
fn swapdb_swaps_locks() {
    let (_server, mut client) = held_by_alice();
    client.ok("SELECT 1");
    client.acquire("door bob 60000");
    client.acquire("gate bob 60000");
    client.ok("SWAPDB 0 1");
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
    assert_eq!(client.owner("gate"), None);
    client.ok("SELECT 0");
    assert_eq!(client.owner("door").as_deref(), Some("bob"));
    assert_eq!(client.release("gate bob"), 0);
    assert_eq!(client.release("door bob"), 0);
}

#[test]
fn expired_lock_is_removed_after_swap_or_reload() {
    let (_server, mut client) = start();
    for put in ["SWAPDB 0 2", "SWAPDB 2 0", "DEBUG RELOAD"] {
        let replies = client.batch(&["DLOCK.ACQUIRE door alice 300", put, "INFO keyspace"]);
        assert_eq!(keys_in(&replies[2]), 1, "{put}");
        wait_for(&format!("an empty keyspace after {put}"), || {
            keys_in(&client.ask("INFO keyspace")) == 0
        });
    }
    assert_eq!(client.stat("dlock_locks"), 0);
}

#[test]
fn renamed_lock_is_removed_after_its_lease_once_command_has_opened_it() {
    let (_server, mut client) = start();
    let puts: [&[&str]; 2] = [
        &["RENAME door gate"],
        &["MOVE door 1", "SWAPDB 1 2", "SELECT 2", "RENAME door gate"],
    ];
    let requests = [
        "RELEASE gate bob",
        "EXTEND gate alice 60000",
        "RELEASE gate alice",
    ];
    for (put, request) in puts
        .iter()
        .flat_map(|put| requests.map(|request| (*put, request)))
    {
        client.ok("SELECT 0");
        client.batch(&[&["DLOCK.ACQUIRE door alice 100"], put].concat());
        client.acquire("other alice 600");
        wait_for("the sweep of a later lease", || !client.exists("other"));
        assert!(client.exists("gate"), "{put:?}");
        assert_eq!(client.owner("gate"), None);
        assert_eq!(client.stat("dlock_locks"), 0);
        client.assert_error("NOTHELD", &format!("DLOCK.{request}"));
        wait_for(request, || !client.exists("gate"));
    }
    client.ok("SELECT 0");
    client.batch(&["DLOCK.ACQUIRE door alice 1", "RENAME door gate"]);
    client.wait_for_lease_end("gate", "alice");
    let fence = client.acquire("gate bob 60000").fence;
    client.assert_sole_holder("gate", "bob", fence, 1);
    // One that is live when a command opens it.
    let opened = "DLOCK.ACQUIRE gate bob 60000";
    let replies = client.batch(&["DLOCK.ACQUIRE door alice 100", "RENAME door gate", opened]);
    assert_eq!(replies[2], Value::Nil);
    wait_for("the sweep", || !client.exists("gate"));
    assert_eq!(client.stat("dlock_locks"), 0);
}

#[test]
fn flush_clears_expiry_index() {
    let (_server, mut client) = start();
    for command in FLUSHES {
        for n in 0..200 {
            client.acquire(&format!("lock{n} alice 60000 SHARED"));
        }
        client.ok(command);
        assert_eq!(client.stat("dlock_locks"), 0, "{command}");
        client.acquire("door alice 100");
        wait_for("the sweep", || !client.exists("door"));
    }
}

#[test]
fn flush_frees_memory_of_locks() {
    const LOCKS: usize = 5_000;
    const NAME_BYTES: usize = 500;
    let (_server, mut client) = start();
    let used = |client: &mut Client| client.server_number::<usize>("memory", "used_memory");
    for command in FLUSHES {
        let before = used(&mut client);
        for n in 0..LOCKS {
            client.acquire(&format!("{n:0NAME_BYTES$} alice 60000"));
        }
        client.ok(command);
        wait_for("less memory than the names of the locks take", || {
            used(&mut client) < before + LOCKS * NAME_BYTES / 2
        });
    }
}

#[test]
fn flushdb_keeps_locks_of_other_databases() {
    let (_server, mut client) = start();
    let replies = client.batch(&[
        "DLOCK.ACQUIRE door alice 300",
        "SELECT 1",
        "DLOCK.ACQUIRE door bob 60000",
        "FLUSHDB",
        "SELECT 0",
        "DLOCK.OWNER door",
    ]);
    assert_eq!(replies[5], Value::BulkString(b"alice".into()));
    wait_for("the sweep", || !client.exists("door"));
}

#[test]
fn foreign_commands_are_replicated() {
    let (_server, _replica, mut client, mut on_replica) = start_with_replica();
    client.acquire("door alice 60000");
    client.acquire("gate bob 60000");
    client.acquire("gone carol 60000");
    client.ok("RENAME door gate");
    client.ask::<i64>("DEL gone");
    client.acquire("gone dave 60000");
    client.sync();
    assert_eq!(on_replica.lock("gate").owners(), ["alice"]);
    assert_eq!(on_replica.lock("gone").owners(), ["dave"]);
}

/// The number of keys in all databases, from INFO keyspace.
fn keys_in(keyspace: &Value) -> usize {
    let text: String = redis::from_redis_value_ref(keyspace).expect("a text");
    let keys = |line: &str| {
        let (_, counts) = line.split_once(":keys=")?;
        counts.split(',').next()?.parse::<usize>().ok()
    };
    text.lines().filter_map(keys).sum()
}
