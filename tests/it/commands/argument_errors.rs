//! Refused requests: the error code, and no side effects.

use std::collections::BTreeMap;

use dlock_testkit::{Client, Events, LockInfo, ReplicationStream, Server, start_with};

/// Words after key and owner, and the mistakes that may follow them as one more argument, separated by `|`.
type Mistakes = &'static [(&'static str, &'static str)];

const BAD_ACQUIRES: Mistakes = &[
    ("", "|0|00|-1|+1|01|1.0|1e3|0x10| 1|1 |ten|١|600001"),
    (
        "",
        "9223372036854775808|18446744073709551616|99999999999999999999999999",
    ),
    ("1000 LIMIT", "|0|-1|+2|02|two|2.0|SHARED"),
    ("1000 LIMIT", "2147483648|4294967297|18446744073709551617"),
    ("1000 BLOCK", "|-1|01|4503599627370497|SHARED"),
    ("1000 BLOCK 1 BLOCK", "1"),
    ("1000 QUEUE inbox 0", "|surplus|REQID|SHARED|BLOCK"),
    ("1000 REQID a QUEUE", "|inbox|<65 bytes>"),
    ("1000 REQID a QUEUE inbox", "|-1|01|4503599627370497|SHARED"),
    ("1000 REQID a QUEUE inbox 0 BLOCK", "0"),
    ("1000 REQID a BLOCK 0 QUEUE inbox", "0"),
    ("1000 REQID a QUEUE inbox 0 QUEUE inbox", "0"),
    ("1000 REQID", "|<65 bytes>"),
    ("1000", "LIMIT|BLOCK|QUEUE|REQID|MINFENCE|ALL|NX||SHARE|SHAREDD"),
    // Conflicting, repeated and unknown options
    ("1000 SHARED", "SHARED"),
    ("1000 SHARED LIMIT", "3"),
    ("1000 LIMIT 3", "SHARED|surplus"),
    ("1000 LIMIT 3 LIMIT", "3"),
    ("1000 limit 3 LIMIT", "4"),
    ("1000 REQID a REQID", "a|b"),
    ("1000 FENCE", "1"),
    // Even valid, only a server of a quorum takes it.
    ("1000 MINFENCE", "0|1|9007199254740992"),
    ("1000 MINFENCE 1 MINFENCE", "1"),
];

const BAD_RELEASES: Mistakes = &[
    ("", "FENCE|REQID|1000|SHARED||ALLL"),
    (
        "FENCE",
        "|0|-1|+1|01|x|1.0|9007199254740992|18446744073709551617|ALL",
    ),
    ("REQID", "|<65 bytes>"),
    // Conflicting, repeated and unknown options
    ("ALL REQID", "a"),
    ("REQID a", "ALL"),
    ("ALL", "ALL|surplus"),
    ("REQID a REQID", "a"),
    ("FENCE 1 FENCE", "1"),
];

const BAD_EXTENDS: Mistakes = &[
    ("", "|0|-1|+1|01|1.0|1e3| 1|ten|600001|18446744073709551616"),
    ("60000", "FENCE|REQID|MINFENCE|ALL|SHARED|surplus|"),
    ("60000 FENCE", "|0|-1|9007199254740992"),
    ("60000 FENCE 1 FENCE", "1"),
    ("60000 REQID", "|<65 bytes>"),
    ("60000 REQID a REQID", "a"),
    ("60000 REQID a FENCE", "1"),
    ("60000 MINFENCE", "0|1|9007199254740992"),
    ("60000 MINFENCE 1 MINFENCE", "1"),
];

/// Refused before the check, so that the code is ERR under any fence.
const BAD_GUARDS: Mistakes = &[
    ("", "|0|-1|+1|01|1.0|x|FENCE|18446744073709551617"),
    ("9007199254740992 SET free", "1"),
    // The command
    ("1 DLOCK.GUARD door alice", "1"),
    ("1 dlock.owner", "door"),
    ("1 dlock.grants inbox", "0"),
    ("1 DLock.Release door", "alice"),
    ("1 DLOCK.APPLY door", "x"),
    ("1", "DLOCK.NONSENSE|READONLY|READWRITE|ASKING"),
    ("1 SELECT", "1"),
    ("1 select", "1"),
    ("1 Wait 0", "0"),
    ("1 WAITAOF 0 0", "0"),
];

#[test]
fn bad_acquire_is_refused_without_side_effects() {
    Fixture::new().refuses_all("DLOCK.ACQUIRE", BAD_ACQUIRES);
}

#[test]
fn bad_release_is_refused_without_side_effects() {
    Fixture::new().refuses_all("DLOCK.RELEASE", BAD_RELEASES);
}

#[test]
fn bad_extend_is_refused_without_side_effects() {
    Fixture::new().refuses_all("DLOCK.EXTEND", BAD_EXTENDS);
}

#[test]
fn bad_guard_is_refused_without_side_effects() {
    Fixture::new().refuses_all("DLOCK.GUARD", BAD_GUARDS);
}

#[test]
fn empty_or_too_long_owner_is_refused_without_side_effects() {
    let mut fixture = Fixture::new();
    let too_long = "o".repeat(513);
    for owner in ["", &too_long] {
        for key in ["door", "free"] {
            fixture.refuses("ERR", &["DLOCK.ACQUIRE", key, owner, "1000", "LIMIT", "3"]);
            fixture.refuses("ERR", &["DLOCK.RELEASE", key, owner]);
            fixture.refuses("ERR", &["DLOCK.EXTEND", key, owner, "1000"]);
            fixture.refuses("ERR", &["DLOCK.GUARD", key, owner, "1", "SET", "free", "1"]);
        }
    }
}

/// Counters of requests that were not carried out, beside those of errors.
const COUNTED_REFUSALS: [&str; 3] = [
    "dlock_not_granted",
    "dlock_guards_refused",
    "dlock_limit_mismatches",
];

/// A server with a lock whose side effects are watched.
struct Fixture {
    client: Client,
    watcher: Client,
    events: Events,
    replication: ReplicationStream,
    // Declared last, so that the server is dropped after its clients.
    _server: Server,
}

/// Everything that a request could change.
#[derive(Debug, PartialEq)]
struct Observed {
    digest: String,
    lock: LockInfo,
    keyspace: BTreeMap<String, String>,
    unsaved_changes: String,
    counters: BTreeMap<String, String>,
    replicated: Vec<String>,
    notified: Vec<String>,
    watch_broken: bool,
}

impl Fixture {
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
        let mut fixture = Self {
            client,
            watcher: server.client(),
            events: Events::watch(&server),
            replication,
            _server: server,
        };
        fixture.watch();
        fixture
    }

    /// Each mistake by a holder, by another owner, and with a free lock.
    fn refuses_all(&mut self, command: &str, mistakes: Mistakes) {
        let too_long = "x".repeat(65);
        for (words, mistakes) in mistakes {
            for mistake in mistakes
                .split('|')
                .map(|text| if text == "<65 bytes>" { &too_long } else { text })
            {
                for (key, owner) in [("door", "alice"), ("door", "carol"), ("free", "alice")] {
                    let words = words.split_whitespace().chain([mistake]);
                    self.refuses(
                        "ERR",
                        &[command, key, owner].into_iter().chain(words).collect::<Vec<_>>(),
                    );
                }
            }
        }
    }

    #[track_caller]
    fn refuses(&mut self, first_word: &str, command: &[&str]) {
        let before = self.observe();
        let words: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        assert_eq!(self.client.error_code_args(&words), first_word, "{command:?}");
        let after = self.observe();
        assert_eq!(after, before, "{command:?}");
        assert_eq!(
            (after.replicated.len(), after.notified.len(), after.watch_broken),
            (0, 0, false),
            "{command:?}"
        );
    }

    fn watch(&mut self) {
        self.watcher.ok("WATCH door free other");
    }

    fn observe(&mut self) -> Observed {
        let mut lock = self.client.lock("door");
        for holder in &mut lock.holders {
            // Leases and held times change anyway. A longer lease would be replicated.
            holder.lease_ms = 0;
            holder.held_ms = 0;
        }
        let mut counters = self.client.info_section("dlock");
        counters.retain(|field, _| {
            !field.starts_with("dlock_errors") && !COUNTED_REFUSALS.contains(&field.as_str())
        });
        self.watcher.ok("MULTI");
        self.watcher.ask::<String>("PING");
        let watch_broken = self.watcher.ask::<Option<Vec<String>>>("EXEC").is_none();
        self.watch();
        Observed {
            digest: self.client.digest("door"),
            lock,
            keyspace: self.client.info_section("keyspace"),
            unsaved_changes: self
                .client
                .server_info("persistence", "rdb_changes_since_last_save"),
            counters,
            replicated: self.replication.take_all(),
            notified: self.events.take(),
            watch_broken,
        }
    }
}
