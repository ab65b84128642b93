//! The settings `dlock.*`.

use dlock_testkit::{Server, start, wait_for};

use crate::fixtures::held_by_alice;

/// Name, default, valid values, invalid values.
const SETTINGS: [(&str, &str, &[&str], &[&str]); 13] = [
    (
        "dlock.max-lease-ms",
        "600000",
        &["1", "5000", "31622400000"],
        &["0", "-1", "x", "", "1.5", "99999999999999999999"],
    ),
    (
        "dlock.max-waiters-per-lock",
        "10000",
        &["1", "1000000"],
        &["-1", "x", "", "99999999999999999999"],
    ),
    (
        "dlock.max-waiters",
        "1000000",
        &["1", "10000000"],
        &["-1", "x", "", "99999999999999999999"],
    ),
    (
        "dlock.max-inboxes",
        "10000",
        &["1", "10000000"],
        &["-1", "x", "", "99999999999999999999"],
    ),
    (
        "dlock.max-holders",
        "10000",
        &["64", "1000000"],
        &["63", "0", "-1", "x", "", "99999999999999999999"],
    ),
    (
        "dlock.deadlock-detection",
        "yes",
        &["no", "yes"],
        &["maybe", "1", ""],
    ),
    (
        "dlock.startup-grace-ms",
        "0",
        &["-1", "0", "86400000"],
        &["-2", "x", "", "99999999999999999999"],
    ),
    (
        "dlock.failover-grace-ms",
        "0",
        &["-1", "0", "86400000"],
        &["-2", "x", "", "99999999999999999999"],
    ),
    ("dlock.allow-eviction", "no", &["yes", "no"], &["maybe", "1", ""]),
    ("dlock.quorum", "no", &["yes", "no"], &["maybe", "1", ""]),
    (
        "dlock.min-sync-replicas",
        "0",
        &["0", "100"],
        &["-1", "101", "x", ""],
    ),
    (
        "dlock.sync-timeout-ms",
        "1000",
        &["10", "60000"],
        &["9", "60001", "x", ""],
    ),
    ("dlock.keep-fence", "yes", &["no", "yes"], &["maybe", "1", ""]),
];

#[test]
fn settings_have_documented_defaults() {
    let (_server, mut client) = start();
    for (name, default, _, _) in SETTINGS {
        assert_eq!(client.config(name), default, "{name}");
    }
    let all: Vec<String> = client.ask("CONFIG GET dlock.*");
    assert_eq!(all.len(), 2 * SETTINGS.len(), "{all:?}");
}

#[test]
fn settings_accept_only_values_in_range() {
    let (_server, mut client) = start();
    for (name, _, taken, refused) in SETTINGS {
        for value in taken {
            client.config_set(name, value);
            assert_eq!(client.config(name), *value, "{name}");
            for bad in refused {
                let words = [&b"CONFIG"[..], b"SET", name.as_bytes(), bad.as_bytes()];
                assert_eq!(client.error_code_args(&words), "ERR", "{name} {bad:?}");
                assert_eq!(client.config(name), *value, "{name} after {bad:?}");
            }
        }
    }
}

#[test]
fn settings_are_read_from_config_file() {
    for (name, _, taken, _) in SETTINGS {
        let server = Server::with(&format!("{name} {}", taken[0]));
        assert_eq!(server.client().config(name), taken[0], "{name}");
    }
}

#[test]
fn server_does_not_start_with_setting_out_of_range() {
    for (name, _, _, refused) in SETTINGS {
        let is_expected = Server::try_with(&format!("{name} {}", refused[0])).is_err();
        assert!(is_expected, "{name} {}", refused[0]);
    }
    assert!(Server::try_with("dlock.no-such-setting 1").is_err());
}

#[test]
fn config_rewrite_keeps_settings() {
    let (_server, mut client) = start();
    client.config_set("dlock.max-lease-ms", "5000");
    client.config_set("dlock.allow-eviction", "yes");
    client.ok("CONFIG REWRITE");
    let file = client.server_info("server", "config_file");
    let text = std::fs::read_to_string(file).expect("the server wrote it");
    assert!(text.contains("dlock.max-lease-ms 5000"), "{text}");
    assert!(text.contains("dlock.allow-eviction yes"), "{text}");
}

/// Whenever a setting changes the module reads the server's INFO, as it does once a second.
#[test]
fn server_info_that_module_reads_is_freed() {
    const CALLS: usize = 5_000;
    let (_server, mut client) = start();
    let batch = vec!["CONFIG SET dlock.max-lease-ms 1000"; 100];
    let mut run = |calls: usize| {
        (0..calls / 100).for_each(|_| _ = client.batch(&batch));
        client.server_number::<usize>("memory", "used_memory")
    };
    let (before, after) = (run(1_000), run(CALLS));
    // Each call reads two fields, of at least 16 bytes each.
    assert!(after < before + CALLS * 2 * 16, "{before} {after}");
}

#[test]
fn max_lease_applies_to_later_requests_only() {
    let (_server, mut client) = held_by_alice();
    client.config_set("dlock.max-lease-ms", "1000");
    client.assert_error("ERR", "DLOCK.ACQUIRE gate bob 1001");
    client.assert_error("ERR", "DLOCK.ACQUIRE door alice 1001");
    client.assert_error("ERR", "DLOCK.EXTEND door alice 1001");
    assert_eq!(client.acquire("gate bob 1000").lease_ms, 1000);
    assert!(client.extend("door alice 1000") > 50_000, "a granted lease stays");
    client.config_set("dlock.max-lease-ms", "200000000");
    assert_eq!(client.acquire("gate bob 200000000").lease_ms, 200_000_000);
}

#[test]
fn replica_accepts_lease_beyond_its_own_max_lease() {
    let server = Server::start();
    let replica = server.replica_with("dlock.max-lease-ms 1000");
    let (mut client, mut on_replica) = (server.client(), replica.client());
    client.acquire("door alice 60000");
    client.extend("door alice 90000");
    client.sync();
    assert!(on_replica.lock("door").holder("alice").lease_ms > 60_000);
    client.release("door alice");
    client.sync();
    wait_for("the release", || !on_replica.exists("door"));
}
