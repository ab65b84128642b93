//! Locks after a restart: from RDB and AOF, after a clean shutdown and a crash.

use std::collections::BTreeMap;
use std::time::Instant;

use dlock_testkit::{Client, LockInfo, Server, start_with, wait_for};
use redis::Value;

use crate::fixtures::{AOF, rewrite_aof};

const KEYS: [&str; 6] = ["mutex", "semaphore", "shared", "named", "released", "never"];

/// Locks of all kinds, with leases that outlast the test.
fn make_locks(client: &mut Client) {
    for request in [
        "mutex alice 60000",
        "mutex alice 90000",
        "semaphore alice 60000 LIMIT 3",
        "semaphore bob 60000 LIMIT 4",
        "shared alice 60000 SHARED",
        "shared bob 600000 SHARED",
        "shared carol 60000 SHARED",
        "named alice 60000 REQID r1",
        "named alice 60000",
        "named alice 60000 REQID r2",
        "released alice 60000",
    ] {
        client.acquire(request);
    }
    client.release("shared bob");
    client.release("named alice");
    client.extend("semaphore bob 120000");
    client.release("released alice");
}

/// The locks at one point in time.
struct Snapshot {
    locks: BTreeMap<&'static str, Option<LockInfo>>,
    digests: BTreeMap<&'static str, String>,
    taken: Instant,
}

impl Snapshot {
    fn take(client: &mut Client) -> Self {
        let taken = Instant::now();
        let locks = KEYS.map(|key| (key, client.find_lock(key))).into();
        let digests = KEYS.map(|key| (key, client.digest(key))).into();
        Self {
            locks,
            digests,
            taken,
        }
    }

    /// Same owners, holds, fences, limits and request ids; no lease expires earlier than it would have.
    #[track_caller]
    fn assert_restored(&self, client: &mut Client) {
        let now = Self::take(client);
        assert_eq!(now.digests, self.digests);
        let passed_ms = u64::try_from(self.taken.elapsed().as_millis()).expect("a short time") + 1;
        for (key, before) in &self.locks {
            let after = &now.locks[key];
            let expected = before.as_ref().map(LockInfo::standing);
            assert_eq!(after.as_ref().map(LockInfo::standing), expected, "{key}");
            let (Some(before), Some(after)) = (before, after) else {
                continue;
            };
            assert_eq!(after.limit, before.limit, "{key}");
            for (then, now) in before.holders.iter().zip(&after.holders) {
                let is_expected = now.lease_ms + passed_ms >= then.lease_ms;
                assert!(is_expected, "{key}: {then:?} expires earlier: {now:?}");
                // The AOF has the granted lease, which starts again: at most that long.
                let given = then.lease_ms + then.held_ms + 2;
                assert!(now.lease_ms <= given, "{key}: {then:?} was prolonged: {now:?}");
            }
        }
        let holds = client.acquire("named alice 60000 REQID r1").holds;
        assert_eq!(holds, 2, "request ids are restored");
        let holds = client.acquire("named alice 60000 REQID r2").holds;
        assert_eq!(holds, 2, "request ids are restored");
        assert_eq!(client.try_acquire("mutex bob 1000"), None);
    }
}

#[test]
fn rdb_restores_all_locks() {
    let mut server = Server::start();
    make_locks(&mut server.client());
    let before = Snapshot::take(&mut server.client());
    server.client().ok("SAVE");
    server.crash_and_restart();
    before.assert_restored(&mut server.client());
}

#[test]
fn clean_shutdown_with_save_points_restores_all_locks() {
    let mut server = Server::with("save 3600 1000000");
    make_locks(&mut server.client());
    let before = Snapshot::take(&mut server.client());
    server.restart();
    before.assert_restored(&mut server.client());
}

#[test]
fn aof_restores_all_locks_after_crash() {
    let mut server = Server::with(AOF);
    make_locks(&mut server.client());
    let before = Snapshot::take(&mut server.client());
    server.crash_and_restart();
    before.assert_restored(&mut server.client());
    server.crash_and_restart();
    before.assert_restored(&mut server.client());
}

#[test]
fn rewritten_aof_restores_all_locks() {
    for preamble in ["yes", "no"] {
        let (mut server, mut client) = start_with(&format!("{AOF}aof-use-rdb-preamble {preamble}"));
        make_locks(&mut client);
        rewrite_aof(&mut client);
        // The AOF continues after its rewritten part.
        client.acquire("mutex alice 60000");
        client.release("shared alice");
        let before = Snapshot::take(&mut client);
        server.crash_and_restart();
        before.assert_restored(&mut server.client());
    }
}

#[test]
fn expired_unswept_lease_is_not_revived_by_snapshot() {
    for (lines, save) in [("", "SAVE"), (AOF, "BGREWRITEAOF")] {
        let (mut server, mut client) = start_with(lines);
        client.pause_writes_after(&[
            "DLOCK.ACQUIRE door alice 20",
            "DLOCK.ACQUIRE both alice 20 SHARED",
            "DLOCK.ACQUIRE both bob 60000 SHARED",
        ]);
        client.wait_for_lease_end("both", "alice");
        client.ask::<Value>(save);
        client.wait_for_aof_rewrite();
        assert!(client.exists("door"), "not swept yet");
        server.crash_and_restart();
        let mut client = server.client();
        assert_eq!(client.owner("door"), None);
        assert_eq!(client.lock("both").owners(), ["bob"]);
        wait_for("the sweep", || !client.exists("door"));
    }
}
