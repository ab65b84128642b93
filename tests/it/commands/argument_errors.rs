//! Requests that are refused: the right first word, and no trace.

use std::collections::BTreeMap;

use dlock_testkit::{Client, Events, LockInfo, ReplicationStream, Server, start_with};

/// What follows key and owner. Each row is one mistake.
const BAD_ACQUIRES: &[&[&str]] = &[
    &[],
    // lease-ms
    &[""],
    &["0"],
    &["00"],
    &["-1"],
    &["+1"],
    &["01"],
    &["1.0"],
    &["1e3"],
    &["0x10"],
    &[" 1"],
    &["1 "],
    &["ten"],
    &["١"],
    &["86400001"],
    &["9223372036854775808"],
    &["18446744073709551616"],
    &["99999999999999999999999999"],
    // LIMIT
    &["1000", "LIMIT"],
    &["1000", "LIMIT", ""],
    &["1000", "LIMIT", "0"],
    &["1000", "LIMIT", "-1"],
    &["1000", "LIMIT", "+2"],
    &["1000", "LIMIT", "02"],
    &["1000", "LIMIT", "2147483648"],
    &["1000", "LIMIT", "4294967297"],
    &["1000", "LIMIT", "two"],
    &["1000", "LIMIT", "2.0"],
    &["1000", "LIMIT", "SHARED"],
    &["1000", "LIMIT", "18446744073709551617"],
    // BLOCK
    &["1000", "BLOCK"],
    &["1000", "BLOCK", ""],
    &["1000", "BLOCK", "-1"],
    &["1000", "BLOCK", "01"],
    &["1000", "BLOCK", "4503599627370497"],
    &["1000", "BLOCK", "SHARED"],
    &["1000", "BLOCK", "1", "BLOCK", "1"],
    // REQID
    &["1000", "REQID"],
    &["1000", "REQID", ""],
    &["1000", "REQID", REQUEST_ID_OF_65_BYTES],
    // Options that contradict each other, stand twice, or do not exist
    &["1000", "SHARED", "LIMIT", "3"],
    &["1000", "LIMIT", "3", "SHARED"],
    &["1000", "SHARED", "SHARED"],
    &["1000", "LIMIT", "3", "LIMIT", "3"],
    &["1000", "limit", "3", "LIMIT", "4"],
    &["1000", "REQID", "a", "REQID", "a"],
    &["1000", "REQID", "a", "REQID", "b"],
    &["1000", "NX"],
    &["1000", ""],
    &["1000", "SHARE"],
    &["1000", "SHAREDD"],
    &["1000", "FENCE", "1"],
    &["1000", "ALL"],
    &["1000", "LIMIT", "3", "surplus"],
];

const BAD_RELEASES: &[&[&str]] = &[
    // FENCE
    &["FENCE"],
    &["FENCE", ""],
    &["FENCE", "0"],
    &["FENCE", "-1"],
    &["FENCE", "+1"],
    &["FENCE", "01"],
    &["FENCE", "x"],
    &["FENCE", "1.0"],
    &["FENCE", "9007199254740992"],
    &["FENCE", "18446744073709551617"],
    &["FENCE", "ALL"],
    // REQID
    &["REQID"],
    &["REQID", ""],
    &["REQID", REQUEST_ID_OF_65_BYTES],
    // Options that contradict each other, stand twice, or do not exist
    &["ALL", "REQID", "a"],
    &["REQID", "a", "ALL"],
    &["ALL", "ALL"],
    &["REQID", "a", "REQID", "a"],
    &["FENCE", "1", "FENCE", "1"],
    &["1000"],
    &["SHARED"],
    &[""],
    &["ALL", "surplus"],
    &["ALLL"],
];

const BAD_EXTENDS: &[&[&str]] = &[
    &[],
    &[""],
    &["0"],
    &["-1"],
    &["+1"],
    &["01"],
    &["1.0"],
    &["1e3"],
    &[" 1"],
    &["ten"],
    &["86400001"],
    &["18446744073709551616"],
    &["60000", "FENCE"],
    &["60000", "FENCE", ""],
    &["60000", "FENCE", "0"],
    &["60000", "FENCE", "-1"],
    &["60000", "FENCE", "9007199254740992"],
    &["60000", "FENCE", "1", "FENCE", "1"],
    &["60000", "ALL"],
    &["60000", "SHARED"],
    &["60000", "REQID", "a"],
    &["60000", "surplus"],
    &["60000", ""],
];

const REQUEST_ID_OF_65_BYTES: &str = "12345678901234567890123456789012345678901234567890123456789012345";

#[test]
fn bad_acquire_is_refused_without_side_effects() {
    Scene::new().refuses_all("DLOCK.ACQUIRE", BAD_ACQUIRES);
}

#[test]
fn bad_release_is_refused_without_side_effects() {
    Scene::new().refuses_all("DLOCK.RELEASE", BAD_RELEASES);
}

#[test]
fn bad_extend_is_refused_without_side_effects() {
    Scene::new().refuses_all("DLOCK.EXTEND", BAD_EXTENDS);
}

#[test]
fn wrong_arity_is_refused_without_side_effects() {
    let mut scene = Scene::new();
    for command in [
        "DLOCK.ACQUIRE",
        "DLOCK.RELEASE",
        "DLOCK.EXTEND",
        "DLOCK.OWNER",
        "DLOCK.INFO",
    ] {
        scene.refuses("ERR", &[command]);
    }
    for command in ["DLOCK.ACQUIRE", "DLOCK.RELEASE", "DLOCK.EXTEND"] {
        scene.refuses("ERR", &[command, "door"]);
    }
    scene.refuses("ERR", &["DLOCK.ACQUIRE", "door", "alice"]);
    scene.refuses("ERR", &["DLOCK.EXTEND", "door", "alice"]);
    scene.refuses("ERR", &["DLOCK.OWNER", "door", "alice"]);
    scene.refuses("ERR", &["DLOCK.INFO", "door", "alice"]);
}

#[test]
fn empty_or_too_long_owner_is_refused_without_side_effects() {
    let mut scene = Scene::new();
    let too_long = "o".repeat(513);
    for owner in ["", &too_long] {
        for key in ["door", "free"] {
            scene.refuses("ERR", &["DLOCK.ACQUIRE", key, owner, "1000", "LIMIT", "3"]);
            scene.refuses("ERR", &["DLOCK.RELEASE", key, owner]);
            scene.refuses("ERR", &["DLOCK.EXTEND", key, owner, "1000"]);
        }
    }
}

#[test]
fn upgrade_is_refused_without_side_effects() {
    let mut scene = Scene::new();
    for options in [&[][..], &["LIMIT", "2"], &["LIMIT", "1", "REQID", "new"]] {
        scene.refuses(
            "ERR",
            &[&["DLOCK.ACQUIRE", "door", "alice", "60000"], options].concat(),
        );
    }
}

#[test]
fn key_of_another_type_is_refused_as_wrongtype() {
    let mut scene = Scene::new();
    for make in [
        "SET other text",
        "RPUSH other text",
        "HSET other field text",
        "SADD other text",
        "XADD other * field text",
    ] {
        scene.client.ask::<redis::Value>("DEL other");
        scene.client.ask::<redis::Value>(make);
        scene.traces();
        scene.refuses("WRONGTYPE", &["DLOCK.ACQUIRE", "other", "alice", "1000"]);
        scene.refuses("WRONGTYPE", &["DLOCK.RELEASE", "other", "alice"]);
        scene.refuses("WRONGTYPE", &["DLOCK.RELEASE", "other", "alice", "REQID", "r1"]);
        scene.refuses("WRONGTYPE", &["DLOCK.EXTEND", "other", "alice", "1000"]);
        scene.refuses("WRONGTYPE", &["DLOCK.OWNER", "other"]);
        scene.refuses("WRONGTYPE", &["DLOCK.INFO", "other"]);
    }
}

#[test]
fn lock_is_wrongtype_for_commands_of_other_types() {
    let mut scene = Scene::new();
    for command in [
        &["GET", "door"][..],
        &["INCR", "door"],
        &["LPUSH", "door", "x"],
        &["HGETALL", "door"],
        &["SCARD", "door"],
    ] {
        scene.refuses("WRONGTYPE", command);
    }
}

#[test]
fn release_and_extend_without_hold_are_refused_without_side_effects() {
    let mut scene = Scene::new();
    let fence = (scene.client.lock("door").holder("alice").fence + 1).to_string();
    scene.refuses("NOTHELD", &["DLOCK.RELEASE", "free", "alice"]);
    scene.refuses("NOTHELD", &["DLOCK.EXTEND", "free", "alice", "60000"]);
    scene.refuses("NOTOWNER", &["DLOCK.RELEASE", "door", "carol", "ALL"]);
    scene.refuses("NOTOWNER", &["DLOCK.EXTEND", "door", "carol", "60000"]);
    scene.refuses("STALE", &["DLOCK.RELEASE", "door", "alice", "FENCE", &fence]);
    scene.refuses(
        "STALE",
        &["DLOCK.RELEASE", "door", "alice", "REQID", "r1", "FENCE", &fence],
    );
    scene.refuses(
        "STALE",
        &["DLOCK.EXTEND", "door", "alice", "60000", "FENCE", &fence],
    );
}

#[test]
fn ungranted_acquire_changes_only_its_counter() {
    let mut scene = Scene::new();
    let before = scene.traces();
    let not_granted = scene.client.stat("dlock_not_granted");
    assert_eq!(scene.client.try_acquire("door carol 60000"), None);
    assert_eq!(
        scene.client.try_acquire("door carol 60000 LIMIT 2 REQID r1"),
        None
    );
    assert_eq!(scene.client.stat("dlock_not_granted"), not_granted + 2);
    assert_eq!(scene.traces(), before);
}

/// A server with a lock, watched from all sides.
struct Scene {
    client: Client,
    watcher: Client,
    events: Events,
    replication: ReplicationStream,
    // Last: the server goes after those who talk to it.
    _server: Server,
}

/// All that a request could leave behind.
#[derive(Debug, PartialEq)]
struct Traces {
    digest: String,
    lock: LockInfo,
    keyspace: BTreeMap<String, String>,
    unsaved_changes: String,
    counters: BTreeMap<String, String>,
    replicated: Vec<String>,
    announced: Vec<String>,
    watch_broken: bool,
}

impl Scene {
    /// `door` is held by alice, with three holds, and by bob; both as LIMIT 3.
    fn new() -> Self {
        let (server, mut client) = start_with("notify-keyspace-events KEA");
        for request in [
            "alice 10000 LIMIT 3",
            "alice 10000 LIMIT 3 REQID r1",
            "alice 10000 LIMIT 3 REQID r2",
            "bob 10000 LIMIT 3",
        ] {
            client.acquire(&format!("door {request}"));
        }
        let replication = ReplicationStream::attach(&server);
        let mut scene = Self {
            client,
            watcher: server.client(),
            events: Events::watch(&server),
            replication,
            _server: server,
        };
        scene.watch();
        scene
    }

    /// Each mistake, made by a holder, by somebody else, and with a free lock.
    fn refuses_all(&mut self, command: &str, mistakes: &[&[&str]]) {
        for mistake in mistakes {
            for (key, owner) in [("door", "alice"), ("door", "carol"), ("free", "alice")] {
                self.refuses("ERR", &[&[command, key, owner], *mistake].concat());
            }
        }
    }

    #[track_caller]
    fn refuses(&mut self, first_word: &str, command: &[&str]) {
        let before = self.traces();
        let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        assert_eq!(self.client.error_code_args(&words), first_word, "{command:?}");
        let after = self.traces();
        assert_eq!(after, before, "{command:?}");
        assert_eq!(
            (after.replicated.len(), after.announced.len(), after.watch_broken),
            (0, 0, false),
            "{command:?}"
        );
    }

    fn watch(&mut self) {
        self.watcher.ok("WATCH door free other");
    }

    fn traces(&mut self) -> Traces {
        let mut lock = self.client.lock("door");
        for holder in &mut lock.holders {
            // Time passes in any case. That no lease became longer is seen in what is replicated.
            holder.lease_ms = 0;
            holder.held_ms = 0;
        }
        let mut counters = self.client.info_section("dlock");
        counters.retain(|field, _| !field.starts_with("dlock_errors") && field != "dlock_not_granted");
        self.watcher.ok("MULTI");
        self.watcher.ask::<String>("PING");
        let watch_broken = self.watcher.ask::<Option<Vec<String>>>("EXEC").is_none();
        self.watch();
        Traces {
            digest: self.client.digest("door"),
            lock,
            keyspace: self.client.info_section("keyspace"),
            unsaved_changes: self
                .client
                .server_info("persistence", "rdb_changes_since_last_save"),
            counters,
            replicated: self.replication.take_all(),
            announced: self.events.take(),
            watch_broken,
        }
    }
}
