//! When a grace period ends, and that a restart or promotion inherits it. Its rules are in `tests/rules`.

use dlock_testkit::{Client, ReplicationStream, Server, skip_part, start_with, wait_for};

use crate::fixtures::{AOF, rewrite_aof};

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
