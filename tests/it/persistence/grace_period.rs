//! The grace period after a start or a promotion: no lock is granted, known holders keep theirs.

use std::time::{Duration, Instant};

use dlock_testkit::{Client, ReplicationStream, Server, pause, skip_part, start_with, wait_for};

use crate::fixtures::{AOF, held_by_alice, rewrite_aof};

/// A restarted server in a grace of one minute. alice holds `door` with a long lease and `short` with a short one.
/// The last value is the fence of `door`.
fn restarted_in_grace() -> (Server, Client, u64) {
    let (mut server, mut client) = start_with(AOF);
    let fence = client.acquire("door alice 300000").fence;
    client.acquire("door alice 300000 REQID r1");
    client.acquire("short alice 5000");
    server.add_config("dlock.startup-grace-ms 60000");
    server.crash_and_restart();
    let client = server.client();
    (server, client, fence)
}

/// The remaining grace that the error states.
#[track_caller]
fn grace_ms(client: &mut Client, command: &str) -> u64 {
    let text = client.error(command);
    assert!(text.starts_with("GRACE "), "{text}");
    let number = text
        .split(|c: char| !c.is_ascii_digit())
        .find(|digits| !digits.is_empty());
    number
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("no milliseconds in {text:?}"))
}

#[test]
fn grace_is_off_by_default() {
    let mut server = Server::with(AOF);
    server.client().acquire("door alice 60000");
    server.crash_and_restart();
    server.client().acquire("gate bob 60000");
    assert_eq!(server.client().stat("dlock_grace_left_ms"), 0);
}

#[test]
fn acquire_in_grace_is_refused_even_to_known_holder() {
    let (_server, mut client, _) = restarted_in_grace();
    for request in [
        "free bob 1000",
        "door bob 1000",
        "door alice 1000",
        "door alice 1000 REQID r2",
        "free alice 1000 SHARED",
    ] {
        let ms = grace_ms(&mut client, &format!("DLOCK.ACQUIRE {request}"));
        assert!((1..=60_000).contains(&ms), "{request}: {ms}");
    }
    assert!(!client.exists("free"));
    assert_eq!(client.lock("door").holder("alice").holds, 2);
    assert!((1..=60_000).contains(&client.stat("dlock_grace_left_ms")));
    assert_eq!(client.stat("dlock_errors_grace"), 5);
}

#[test]
fn repeated_reqid_in_grace_is_answered() {
    let (_server, mut client, fence) = restarted_in_grace();
    let grant = client.acquire("door alice 300000 REQID r1");
    assert_eq!((grant.fence, grant.holds), (fence, 2));
}

#[test]
fn bad_request_in_grace_is_refused_as_bad_request() {
    let (_server, mut client, _) = restarted_in_grace();
    client.ok("SET text value");
    client.assert_error("ERR", "DLOCK.ACQUIRE door alice 0");
    client.assert_error("WRONGTYPE", "DLOCK.ACQUIRE text alice 1000");
}

#[test]
fn extend_in_grace_needs_fence_or_reqid() {
    let (_server, mut client, fence) = restarted_in_grace();
    let ms = grace_ms(&mut client, "DLOCK.EXTEND door alice 400000");
    assert!((1..=60_000).contains(&ms));
    let lease_ms = client.extend(&format!("door alice 400000 FENCE {fence}"));
    assert_eq!(lease_ms, 400_000);
    assert_eq!(client.extend("door alice 500000 REQID r1"), 500_000);
    client.assert_error("STALE", "DLOCK.EXTEND door alice 400000 REQID r2");
    client.assert_error(
        "STALE",
        &format!("DLOCK.EXTEND door alice 400000 FENCE {}", fence + 1),
    );
    client.assert_error("NOTOWNER", &format!("DLOCK.EXTEND door bob 400000 FENCE {fence}"));
    client.assert_error("NOTHELD", &format!("DLOCK.EXTEND free bob 400000 FENCE {fence}"));
}

#[test]
fn release_and_reads_work_in_grace() {
    let (_server, mut client, fence) = restarted_in_grace();
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
    client.assert_sole_holder("door", "alice", fence, 2);
    assert_eq!(client.release("door alice REQID r1"), 1);
    assert_eq!(client.release(&format!("door alice FENCE {fence}")), 0);
    client.assert_error("NOTHELD", "DLOCK.RELEASE door alice");
    grace_ms(&mut client, "DLOCK.ACQUIRE door bob 1000");
}

#[test]
fn known_lease_lasts_until_end_of_grace() {
    let (_server, mut client, _) = restarted_in_grace();
    let lease_ms = client.lock("short").holder("alice").lease_ms;
    let left_ms = grace_ms(&mut client, "DLOCK.ACQUIRE short bob 1000");
    assert!(lease_ms + 1 >= left_ms, "{lease_ms} {left_ms}");
    assert!(lease_ms <= 60_000, "no longer than needed: {lease_ms}");
    assert_eq!(client.release("short alice"), 0);
}

#[test]
fn lease_shorter_than_grace_expires_with_it() {
    let mut server = Server::with(AOF);
    server.client().acquire("door alice 700");
    server.add_config("dlock.startup-grace-ms 4000");
    server.kill();
    let start = Instant::now();
    server.start_again();
    let mut client = server.client();
    while start.elapsed() < Duration::from_millis(1000) {
        assert_eq!(client.owner("door").as_deref(), Some("alice"));
        grace_ms(&mut client, "DLOCK.ACQUIRE door bob 1000");
    }
    wait_for("the end of the grace", || {
        client.call("DLOCK.ACQUIRE door bob 60000").is_ok()
    });
    assert!(start.elapsed() >= Duration::from_millis(4000));
    assert_eq!(client.owner("door").as_deref(), Some("bob"));
    assert_eq!(client.stat("dlock_grace_left_ms"), 0);
}

#[test]
fn grace_of_minus_one_is_longest_lease_allowed_or_known() {
    let mut server = Server::with(&format!(
        "{AOF}dlock.startup-grace-ms -1\ndlock.max-lease-ms 70000"
    ));
    let ms = grace_ms(&mut server.client(), "DLOCK.ACQUIRE door alice 1000");
    assert!((60_000..=70_000).contains(&ms), "{ms}");

    let mut server_with_lock = Server::with(AOF);
    server_with_lock.client().acquire("door alice 90000");
    server_with_lock.add_config("dlock.startup-grace-ms -1\ndlock.max-lease-ms 70000");
    server_with_lock.crash_and_restart();
    let ms = grace_ms(&mut server_with_lock.client(), "DLOCK.ACQUIRE free alice 1000");
    assert!((80_000..=90_000).contains(&ms), "{ms}");
    server.kill();
}

#[test]
fn remaining_grace_survives_restart() {
    for lines in [AOF, "save 3600 1000000"] {
        let (mut server, mut client) = start_with(&format!("{lines}\ndlock.startup-grace-ms 60000"));
        grace_ms(&mut client, "DLOCK.ACQUIRE door bob 1000");
        if lines != AOF && !keeps_module_data_in_rdb(&mut client) {
            skip_part("the part with RDB files: this server keeps no module data there");
            continue;
        }
        if lines == AOF {
            let log = server.directory().join("appendonlydir");
            wait_for("the grace in the AOF", || directory_contains(&log, b"DLOCK.SYNC"));
        }
        server.add_config("dlock.startup-grace-ms 0");
        server.restart();
        let ms = grace_ms(&mut server.client(), "DLOCK.ACQUIRE door bob 1000");
        assert!((20_000..=60_000).contains(&ms), "{ms}");
    }
}

#[test]
fn remaining_grace_survives_aof_rewrite() {
    for preamble in ["yes", "no"] {
        let (mut server, mut client) = start_with(&format!(
            "{AOF}aof-use-rdb-preamble {preamble}\ndlock.startup-grace-ms 60000"
        ));
        rewrite_aof(&mut client);
        let mut stream = ReplicationStream::attach(&server);
        wait_for("the grace in the AOF", || {
            stream
                .take_all()
                .iter()
                .any(|command| command.starts_with("DLOCK.SYNC "))
        });
        server.add_config("dlock.startup-grace-ms 0");
        server.crash_and_restart();
        let ms = grace_ms(&mut server.client(), "DLOCK.ACQUIRE door bob 1000");
        assert!((20_000..=60_000).contains(&ms), "{ms}");
    }
}

#[test]
fn promotion_begins_failover_grace() {
    let mut primary = Server::start();
    let replica = primary.replica_with("dlock.failover-grace-ms 60000");
    let mut client = primary.client();
    let fence = client.acquire("door alice 300000").fence;
    client.acquire("short alice 10000");
    client.sync();
    primary.kill();
    let mut client = replica.client();
    client.assert_error("READONLY", "DLOCK.ACQUIRE free bob 1000");
    client.ok("REPLICAOF NO ONE");
    let ms = grace_ms(&mut client, "DLOCK.ACQUIRE free bob 1000");
    assert!((20_000..=60_000).contains(&ms), "{ms}");
    grace_ms(&mut client, "DLOCK.EXTEND door alice 400000");
    let lease_ms = client.extend(&format!("door alice 400000 FENCE {fence}"));
    assert_eq!(lease_ms, 400_000);
    let is_expected = client.lock("short").holder("alice").lease_ms > 10_000;
    assert!(is_expected, "it lasts until the end of the grace");
    assert_eq!(client.release(&format!("door alice FENCE {fence}")), 0);
}

#[test]
fn locks_are_granted_after_failover_grace() {
    let mut primary = Server::start();
    let replica = primary.replica_with("dlock.failover-grace-ms 3000");
    let mut client = primary.client();
    let fence = client.acquire("door alice 100").fence;
    client.sync();
    primary.kill();
    let mut client = replica.client();
    client.ok("REPLICAOF NO ONE");
    let start = Instant::now();
    grace_ms(&mut client, "DLOCK.ACQUIRE free bob 1000");
    wait_for("the end of the grace", || {
        client.call("DLOCK.ACQUIRE free bob 60000").is_ok()
    });
    assert!(start.elapsed() >= Duration::from_millis(2900));
    assert!(client.acquire("door bob 60000").fence > fence);
}

#[test]
fn remaining_grace_survives_promotion() {
    let primary = Server::with("dlock.startup-grace-ms 60000");
    let replica = primary.replica();
    // All replicas receive the same stream.
    let mut stream = ReplicationStream::attach(&primary);
    wait_for("the grace in the stream", || {
        stream
            .take_all()
            .iter()
            .any(|command| command.starts_with("DLOCK.SYNC "))
    });
    let mut client = primary.client();
    client.ok("SET text value");
    client.sync();
    let mut client = replica.client();
    client.ok("REPLICAOF NO ONE");
    let ms = grace_ms(&mut client, "DLOCK.ACQUIRE door bob 1000");
    assert!((20_000..=60_000).contains(&ms), "{ms}");
}

#[test]
fn restarted_replica_begins_no_grace() {
    let primary = Server::start();
    primary.client().acquire("door alice 60000");
    let replica = primary.replica_with("dlock.startup-grace-ms 60000");
    assert_eq!(replica.client().stat("dlock_grace_left_ms"), 0);
    let lease_ms = replica.client().lock("door").holder("alice").lease_ms;
    assert!(lease_ms <= 60_000, "{lease_ms}");
    replica.client().ok("REPLICAOF NO ONE");
    replica.client().acquire("gate bob 1000");
}

#[test]
fn raised_grace_setting_applies_to_next_grace() {
    let (_server, mut client) = held_by_alice();
    client.config_set("dlock.startup-grace-ms", "60000");
    client.config_set("dlock.failover-grace-ms", "60000");
    client.acquire("gate bob 60000");
    let (_server, mut client, _) = restarted_in_grace();
    client.config_set("dlock.startup-grace-ms", "120000");
    assert!(client.stat("dlock_grace_left_ms") <= 60_000);
}

#[test]
fn lowered_setting_shortens_running_grace_to_that_length() {
    let (_server, mut client, _) = restarted_in_grace();
    client.config_set("dlock.startup-grace-ms", "40000");
    let left_ms = client.stat("dlock_grace_left_ms");
    assert!((10_000..=40_000).contains(&left_ms), "{left_ms}");
    client.config_set("dlock.failover-grace-ms", "1");
    client.config_set("dlock.failover-grace-ms", "0");
    assert!(client.stat("dlock_grace_left_ms") > 10_000, "the other kind");
}

#[test]
fn setting_of_zero_ends_running_grace_at_once() {
    let (server, mut client, fence) = restarted_in_grace();
    let mut bob = server.waiter("short bob 60000 BLOCK 0");
    bob.assert_waiting();
    client.config_set("dlock.startup-grace-ms", "0");
    assert_eq!(client.stat("dlock_grace_left_ms"), 0);
    client.acquire("free bob 1000");
    client.assert_sole_holder("door", "alice", fence, 2);
    // Its lease of 5 s counts again.
    bob.granted();
    let log = server.log();
    assert!(
        log.contains("dlock.startup-grace-ms was lowered: the grace period ends in 0 ms"),
        "{log}"
    );
    wait_for("the end in the log", || {
        server.log().contains("grace period ended")
    });
}

#[test]
fn lock_whose_lease_a_grace_had_stretched_is_removed_when_grace_is_ended() {
    let (mut server, mut client) = start_with(AOF);
    client.acquire("short alice 1000");
    client.acquire("door alice 60000");
    server.add_config("dlock.startup-grace-ms 60000");
    server.crash_and_restart();
    let mut client = server.client();
    pause(1_500);
    assert_eq!(client.stat("dlock_locks"), 2);
    client.config_set("dlock.startup-grace-ms", "0");
    // No command opens it.
    wait_for("its end", || client.ask::<i64>("DBSIZE") == 1);
    assert_eq!(client.stat("dlock_expired"), 1);
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
}

#[test]
fn ended_grace_stays_ended_after_restart() {
    for lines in ["dlock.keep-fence yes", "dlock.keep-fence no"] {
        let (mut server, mut client) = start_with(&format!("{AOF}{lines}\ndlock.startup-grace-ms 60000"));
        grace_ms(&mut client, "DLOCK.ACQUIRE door bob 1000");
        let log = server.directory().join("appendonlydir");
        wait_for("the grace in the AOF", || directory_contains(&log, b"DLOCK.SYNC"));
        client.config_set("dlock.startup-grace-ms", "0");
        wait_for("its end in the AOF", || directory_contains(&log, b"ATMOST"));
        server.add_config("dlock.startup-grace-ms 0");
        server.crash_and_restart();
        server.client().acquire("door bob 1000");
    }
}

#[test]
fn grace_that_is_over_does_not_begin_again_after_restart() {
    let (mut server, _) = start_with(&format!("{AOF}dlock.startup-grace-ms 3000"));
    let log = server.directory().join("appendonlydir");
    wait_for("its end in the AOF", || directory_contains(&log, b"ATMOST"));
    server.add_config("dlock.startup-grace-ms 0");
    server.crash_and_restart();
    server.client().acquire("door bob 1000");
}

#[test]
fn inherited_grace_is_ended_by_setting_zero_again() {
    let (mut server, mut client) = start_with(&format!("{AOF}dlock.startup-grace-ms 60000"));
    grace_ms(&mut client, "DLOCK.ACQUIRE door bob 1000");
    let log = server.directory().join("appendonlydir");
    wait_for("the grace in the AOF", || directory_contains(&log, b"DLOCK.SYNC"));
    server.add_config("dlock.startup-grace-ms 0");
    server.crash_and_restart();
    let mut client = server.client();
    grace_ms(&mut client, "DLOCK.ACQUIRE door bob 1000");
    client.config_set("dlock.max-lease-ms", "1000");
    grace_ms(&mut client, "DLOCK.ACQUIRE door bob 1000");
    client.config_set("dlock.startup-grace-ms", "0");
    client.acquire("door bob 1000");
}

#[test]
fn grace_that_is_ended_ends_on_replicas() {
    let primary = Server::with("dlock.startup-grace-ms 600000");
    let replica = primary.replica();
    let (mut client, mut of_replica) = (primary.client(), replica.client());
    wait_for("the grace", || of_replica.stat("dlock_grace_left_ms") > 0);
    client.config_set("dlock.startup-grace-ms", "0");
    wait_for("its end", || of_replica.stat("dlock_grace_left_ms") == 0);
    of_replica.ok("REPLICAOF NO ONE");
    of_replica.acquire("door bob 1000");
}

#[test]
fn failover_grace_is_ended_by_its_setting_only() {
    let mut primary = Server::start();
    let replica = primary.replica_with("dlock.failover-grace-ms 60000");
    primary.kill();
    let mut client = replica.client();
    client.ok("REPLICAOF NO ONE");
    grace_ms(&mut client, "DLOCK.ACQUIRE free bob 1000");
    client.config_set("dlock.startup-grace-ms", "0");
    grace_ms(&mut client, "DLOCK.ACQUIRE free bob 1000");
    client.config_set("dlock.failover-grace-ms", "0");
    client.acquire("free bob 1000");
}

#[test]
fn grace_of_more_than_two_minutes_is_logged_as_warning() {
    for (grace_ms, is_long) in [(120_000, false), (120_900, true)] {
        let server = Server::with(&format!("dlock.startup-grace-ms {grace_ms}"));
        wait_for("the begin in the log", || {
            server.log().contains("grace period began")
        });
        let log = server.log();
        let line = log
            .lines()
            .find(|line| line.contains("grace period began"))
            .expect("found");
        assert_eq!(line.contains(" # "), is_long, "{line}");
        assert_eq!(line.contains("To end it, lower"), is_long, "{line}");
    }
}

/// Whether RDB files contain auxiliary data of modules (Redis 7.2 and later).
fn keeps_module_data_in_rdb(client: &mut Client) -> bool {
    client.ok("SAVE");
    let dir = client.config("dir");
    let file = std::fs::read(std::path::Path::new(&dir).join("dump.rdb")).expect("the server wrote it");
    // The opcode of auxiliary module data, and a 64-bit length.
    file.windows(2).any(|bytes| bytes == [247, 0x81])
}

fn directory_contains(directory: &std::path::Path, text: &[u8]) -> bool {
    let files = std::fs::read_dir(directory).expect("the AOF is there").flatten();
    files
        .filter_map(|file| std::fs::read(file.path()).ok())
        .any(|bytes| bytes.windows(text.len()).any(|window| window == text))
}
