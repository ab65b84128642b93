//! DUMP, RESTORE and MIGRATE of a lock.

use dlock_testkit::{Client, LockInfo, Server, payload, start, start_with, wait_for};
use redis::Value;

/// A lock with limits, request ids and several holders.
fn make_lock(client: &mut Client) -> LockInfo {
    for request in [
        "alice 60000 LIMIT 5",
        "alice 60000 LIMIT 5 REQID r1",
        "bob 90000 LIMIT 4 REQID r1",
        "carol 60000 SHARED",
    ] {
        client.acquire(&format!("door {request}"));
    }
    client.lock("door")
}

fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    client.ask(&format!("DUMP {key}"))
}

fn restore(client: &mut Client, key: &str, payload: &[u8]) {
    let reply = client.ask_args::<Value>(&[b"RESTORE", key.as_bytes(), b"0", payload]);
    assert_eq!(reply, Value::Okay);
}

#[track_caller]
fn assert_same_lock(client: &mut Client, key: &str, before: &LockInfo) {
    let after = client.lock(key);
    assert_eq!((after.limit, after.standing()), (before.limit, before.standing()));
    for (then, now) in before.holders.iter().zip(&after.holders) {
        assert!(now.lease_ms <= then.lease_ms + 1, "{then:?} {now:?}");
        assert!(now.lease_ms + 20_000 > then.lease_ms, "{then:?} {now:?}");
        assert!(now.held_ms >= then.held_ms, "{then:?} {now:?}");
    }
    let holds = client.acquire(&format!("{key} bob 90000 LIMIT 4 REQID r1")).holds;
    assert_eq!(holds, 1, "request ids are restored");
}

#[test]
fn restore_keeps_holders_holds_fences_and_leases() {
    let (_server, mut client) = start();
    let before = make_lock(&mut client);
    let payload = dump(&mut client, "door");
    client.ask::<i64>("DEL door");
    restore(&mut client, "door", &payload);
    assert_same_lock(&mut client, "door", &before);
    assert_eq!(client.ask::<String>("TYPE door"), "dist-lock");
    assert_eq!(client.ask::<i64>("PTTL door"), -1);
}

#[test]
fn restore_onto_existing_key_needs_replace() {
    let (_server, mut client) = start();
    let before = make_lock(&mut client);
    let payload = dump(&mut client, "door");
    client.acquire("gate dave 60000");
    let code = client.error_code_args(&[b"RESTORE", b"gate", b"0", &payload]);
    assert_eq!(code, "BUSYKEY");
    assert_eq!(client.lock("gate").owners(), ["dave"]);
    client.ask_args::<Value>(&[b"RESTORE", b"gate", b"0", &payload, b"REPLACE"]);
    assert_same_lock(&mut client, "gate", &before);
    client.assert_error("NOTOWNER", "DLOCK.RELEASE gate dave");
}

#[test]
fn restore_is_replicated() {
    let server = Server::start();
    let replica = server.replica();
    let mut client = server.client();
    let before = make_lock(&mut client);
    let payload = dump(&mut client, "door");
    restore(&mut client, "copy", &payload);
    client.sync();
    let copy = replica.client().lock("copy");
    assert_eq!((copy.limit, copy.standing()), (before.limit, before.standing()));
}

#[test]
fn migrate_moves_lock_to_another_server() {
    let source = Server::start();
    let target = Server::start();
    let (mut from, mut to) = (source.client(), target.client());
    let before = make_lock(&mut from);
    from.ok(&format!("MIGRATE 127.0.0.1 {} door 0 10000", target.port()));
    assert!(!from.exists("door"));
    assert_same_lock(&mut to, "door", &before);
    from.assert_error("NOTHELD", "DLOCK.RELEASE door alice");
    assert_eq!(to.release("door carol"), 0);
}

/// 366 days of the clock that fences start from: 2048 a millisecond.
const YEAR: u64 = 366 * 24 * 60 * 60 * 1000 * 2048;

/// A payload of a lock of mallory with this fence and lease.
fn forged(dump: &[u8], fence: u64, lease_ms: u64) -> Vec<u8> {
    let owner = "mallory";
    payload::with_holders(
        dump,
        [payload::Holder {
            owner,
            fence,
            lease_ms,
        }],
    )
}

#[test]
fn restore_with_implausible_fence_is_refused() {
    let (_server, mut client) = start_with("rdbcompression no");
    let fence = client.acquire("door alice 60000").fence;
    let payload = dump(&mut client, "door");
    restore(&mut client, "unchanged", &forged(&payload, fence, 60_000));
    for far in [fence + 2 * YEAR, (1 << 53) - 1] {
        client.error_code_args(&[b"RESTORE", b"gate", b"0", &forged(&payload, far, 60_000)]);
        assert!(!client.exists("gate"));
        assert_eq!(
            client.acquire(&format!("lock{far} alice 60000")).fence / YEAR,
            fence / YEAR,
            "the counter is unchanged"
        );
    }
    let near = fence + YEAR / 2;
    restore(&mut client, "near", &forged(&payload, near, 60_000));
    assert!(client.acquire("next alice 60000").fence > near);
}

#[test]
fn many_forged_fences_do_not_add_up() {
    let (_server, mut client) = start();
    let fence = client.acquire("door alice 60000").fence;
    let payload = dump(&mut client, "door");
    for n in 1..200 {
        let forged = forged(&payload, fence + n * (YEAR - 1), 60_000);
        let _ = client.call_args(&[b"RESTORE", b"gate", b"0", &forged, b"REPLACE"]);
    }
    assert!(client.acquire("next alice 60000").fence < fence + 2 * YEAR);
}

#[test]
fn restore_with_lease_of_more_than_ten_years_is_refused() {
    const TEN_YEARS_MS: u64 = 10 * 366 * 24 * 60 * 60 * 1000;
    let (_server, mut client) = start_with("dlock.failover-grace-ms -1");
    let fence = client.acquire("door alice 60000").fence;
    let payload = dump(&mut client, "door");
    for lease_ms in [TEN_YEARS_MS + 1_000, 1 << 52] {
        client.error_code_args(&[b"RESTORE", b"gate", b"0", &forged(&payload, fence, lease_ms)]);
    }
    client.ok("REPLICAOF 127.0.0.1 1");
    client.ok("REPLICAOF NO ONE");
    wait_for("the grace", || client.stat("dlock_grace_left_ms") > 0);
    let is_expected = client.stat("dlock_grace_left_ms") <= 86_400_000;
    assert!(is_expected, "of the longest lease allowed");
    client.ok("CONFIG SET dlock.failover-grace-ms 0");
    restore(&mut client, "gate", &forged(&payload, fence, TEN_YEARS_MS));
}

/// The server finds a wrong byte after the value, or a TTL in the past, when the module has already loaded the value.
#[test]
fn failed_restore_leaves_nothing() {
    let (_server, mut client) = start();
    let fence = client.acquire("door alice 60000").fence;
    let payload = forged(&dump(&mut client, "door"), fence + YEAR / 2, 1 << 38);
    let body = payload::body(&payload);
    let (value, version) = body.split_at(body.len() - 2);
    let bad = payload::sealed(&[&value[..value.len() - 1], &[1], version].concat());
    for n in 0..300 {
        let name = format!("name{n}");
        client.error_code_args(&[b"RESTORE", name.as_bytes(), b"0", &bad]);
        let past = [b"RESTORE", name.as_bytes(), b"1", &payload, b"ABSTTL"];
        assert_eq!(client.ask_args::<Value>(&past), Value::Okay);
    }
    assert_eq!(client.ask::<i64>("DBSIZE"), 1);
    wait_for("only the lock that is there", || client.stat("dlock_locks") == 1);
    assert!(client.acquire("next alice 60000").fence < fence + YEAR / 4);
}

#[test]
fn restored_fence_counts_at_once() {
    let (_server, mut client) = start();
    let first = client.acquire("door alice 60000").fence;
    let dump = dump(&mut client, "door");
    for (n, removal) in (1..).zip([
        "DEL door",
        "FLUSHALL",
        "SET door value",
        "DLOCK.RELEASE door mallory",
    ]) {
        let fence = first + n * YEAR / 10;
        let forged = forged(&dump, fence, 60_000);
        let mut commands: Vec<Vec<&[u8]>> = vec![vec![b"RESTORE", b"door", b"0", &forged, b"REPLACE"]];
        for command in [removal, "DEL door", "DLOCK.ACQUIRE door alice 60000"] {
            commands.push(command.split(' ').map(str::as_bytes).collect());
        }
        client.pipeline(commands);
        assert!(client.lock("door").holders[0].fence > fence, "{removal}");
    }
}
