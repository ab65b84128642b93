//! The settings `dlock.*`.

use dlock_testkit::{Server, start};

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
    let lines = SETTINGS.map(|(name, _, taken, _)| format!("{name} {}", taken[0]));
    let server = Server::with(&lines.join("\n"));
    let mut client = server.client();
    for (name, _, taken, _) in SETTINGS {
        assert_eq!(client.config(name), taken[0], "{name}");
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
    const CALLS: usize = 2_000;
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
