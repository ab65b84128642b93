//! `dlock.min-sync-replicas` and other settings, and the log. What it does is in `tests/rules`.

use dlock_testkit::{Server, start, wait_for};

#[test]
fn setting_excludes_a_quorum() {
    let (_server, mut client) = start();
    client.config_set("dlock.quorum", "yes");
    let error = client.error("CONFIG SET dlock.min-sync-replicas 1");
    assert!(error.contains("set only one of them"), "{error}");
    assert_eq!(client.config("dlock.min-sync-replicas"), "0");
    client.ok("CONFIG SET dlock.min-sync-replicas 1 dlock.quorum no");
    client.assert_error("ERR", "CONFIG SET dlock.quorum yes");
    assert!(Server::try_with("dlock.min-sync-replicas 1\ndlock.quorum yes").is_err());
}

#[test]
fn requests_for_acknowledgements_are_not_logged() {
    let (primary, mut client) = dlock_testkit::start_with("appendonly yes\nauto-aof-rewrite-percentage 0");
    let replica = primary.replica_with("appendonly yes");
    client.config_set("dlock.min-sync-replicas", "1");
    wait_for("the replica", || client.stat("dlock_sync_replicas") == 1);
    for server in [&primary, &replica] {
        client.acquire("door alice 60000");
        client.release("door alice");
        client.sync();
        assert!(!log_of(server).contains("GETACK"));
    }
}

/// All of a server's append-only files.
fn log_of(server: &Server) -> String {
    let folder = server.directory().join("appendonlydir");
    let files = std::fs::read_dir(folder).expect("the server has a log");
    let read = |file: std::io::Result<std::fs::DirEntry>| std::fs::read(file.expect("a file").path());
    let logs = files.map(|file| read(file).expect("the log is readable"));
    logs.map(|log| String::from_utf8_lossy(&log).into_owned())
        .collect()
}
