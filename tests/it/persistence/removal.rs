//! `dlock.keep-fence no`: a server that was tried with the module starts without it on its files.

use dlock_testkit::{Client, Server, start, start_with, wait_for};

use crate::fixtures::{AOF, rewrite_aof};

/// Locks that were acquired, contended, extended, lost and broken; then none.
fn try_module(server: &Server, client: &mut Client) {
    client.ok("SET other value");
    client.acquire("door alice 60000");
    client.acquire("pool carol 60000 LIMIT 2 REQID r1");
    client.acquire("short dave 1");
    let mut bob = server.waiter("door bob 60000 BLOCK 0");
    client.ask::<i64>("DLOCK.EXTEND door alice 90000");
    client.release("door alice");
    bob.granted();
    client.release("door bob");
    client.ask::<i64>("DEL pool");
    wait_until_no_locks_are_left(client);
}

#[track_caller]
fn wait_until_no_locks_are_left(client: &mut Client) {
    wait_for("no locks", || client.ask::<i64>("DBSIZE") == 1);
    assert_eq!(client.stat("dlock_locks"), 0);
}

/// The server must start without the module on the files of that one.
#[track_caller]
fn assert_starts_without_module(server: &Server, lines: &str) {
    match Server::without_module_on_copy_of(server, lines) {
        Ok(server) => assert_eq!(server.client().ask::<String>("GET other"), "value"),
        Err(log) => panic!("{log}"),
    }
}

#[test]
fn server_starts_without_module_on_rdb_if_fence_is_not_kept() {
    let (server, mut client) = start_with("dlock.keep-fence no");
    try_module(&server, &mut client);
    client.ok("SAVE");
    assert_starts_without_module(&server, "");
    client.config_set("dlock.keep-fence", "yes");
    client.ok("SAVE");
    let is_readable = Server::without_module_on_copy_of(&server, "").is_ok();
    let expected = server.log().contains("version=7.0");
    assert_eq!(is_readable, expected, "Redis 7.0 never keeps it in the RDB");
}

#[test]
fn server_starts_without_module_on_rdb_of_shutdown() {
    let (mut server, mut client) = start_with("dlock.keep-fence no\nsave 3600 1");
    try_module(&server, &mut client);
    server.shut_down();
    assert_starts_without_module(&server, "");
}

#[test]
fn server_starts_without_module_on_rewritten_aof() {
    for preamble in ["yes", "no"] {
        let lines = format!("{AOF}aof-use-rdb-preamble {preamble}\n");
        let (server, mut client) = start_with(&format!("{lines}dlock.keep-fence no"));
        try_module(&server, &mut client);
        let is_expected = Server::without_module_on_copy_of(&server, &lines).is_err();
        assert!(is_expected, "it has the changes of the locks");
        rewrite_aof(&mut client);
        // A replica asks for the fence, which is not for the log.
        let replica = server.replica_with("dlock.keep-fence no");
        wait_for("the fence", || {
            replica.client().stat("dlock_fence_known") == client.stat("dlock_fence_known")
        });
        client.ok("SET other value");
        assert_starts_without_module(&server, &lines);
        client.acquire("door alice 60000");
        let is_expected = Server::without_module_on_copy_of(&server, &lines).is_err();
        assert!(is_expected, "it has a lock");
    }
}

#[test]
fn replica_starts_without_module_on_rewritten_aof() {
    let (server, mut client) = start_with("dlock.keep-fence no");
    let lines = format!("{AOF}dlock.keep-fence no");
    let replica = server.replica_with(&lines);
    try_module(&server, &mut client);
    client.sync();
    let mut of_replica = replica.client();
    wait_until_no_locks_are_left(&mut of_replica);
    rewrite_aof(&mut of_replica);
    // The primary sends its fence to the second replica, and so to this one.
    let _second = server.replica();
    client.sync();
    assert_starts_without_module(&replica, AOF);
}

#[test]
fn fence_that_is_not_kept_starts_from_clock() {
    let (mut server, mut client) = start_with("dlock.keep-fence no\nsave 3600 1");
    let before = client.acquire("door alice 60000").fence;
    client.release("door alice");
    server.restart();
    let mut client = server.client();
    assert_eq!(client.stat("dlock_fence_known"), 0);
    let is_expected = client.acquire("door alice 60000").fence > before;
    assert!(is_expected, "the clock went on");
}

#[test]
fn fence_that_a_promotion_put_ahead_of_the_clock_is_kept() {
    let (mut primary, mut client) = start_with("dlock.keep-fence no");
    let (mut server, mut promoted) = start_with(&format!("{AOF}dlock.keep-fence no"));
    promoted.ok(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    server.wait_until_linked();
    client.acquire("door alice 60000");
    client.release("door alice");
    client.sync();
    primary.kill();
    let mut client = promoted;
    client.ok("REPLICAOF NO ONE");
    let before = client.acquire("door alice 60000").fence;
    client.release("door alice");
    rewrite_aof(&mut client);
    wait_for("the fence in the log", || {
        Server::without_module_on_copy_of(&server, AOF).is_err()
    });
    server.crash_and_restart();
    assert!(server.client().acquire("door alice 60000").fence > before);
}

#[test]
fn fence_is_logged_when_it_is_to_be_kept_again() {
    let (mut server, mut client) = start_with(&format!("{AOF}dlock.keep-fence no"));
    client.acquire("door alice 60000");
    client.release("door alice");
    rewrite_aof(&mut client);
    let fence = client.stat("dlock_fence_known");
    assert!(Server::without_module_on_copy_of(&server, AOF).is_ok());
    client.config_set("dlock.keep-fence", "yes");
    wait_for("the fence in the log", || {
        Server::without_module_on_copy_of(&server, AOF).is_err()
    });
    server.crash_and_restart();
    assert!(server.client().stat("dlock_fence_known") >= fence);
}

#[test]
fn rdb_without_locks_loads_without_module() {
    let (server, mut client) = start();
    client.ok("SET text value");
    client.ok("SAVE");
    let plain = Server::without_module_on_copy_of(&server, "").expect("it needs no module");
    assert_eq!(plain.client().ask::<String>("GET text"), "value");
}
