//! What the log says of policies that could evict locks, and the memory that a flush frees.

use dlock_testkit::{Client, Server, start, wait_for};

/// The number of warnings in the log that locks may be evicted.
fn warnings(server: &Server) -> usize {
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("(EVICTABLE)"));
    lines
        .filter(|line| line.contains("dlock.allow-eviction yes"))
        .count()
}

#[test]
fn evicting_policy_is_logged_at_start() {
    let evicting = "maxmemory 1gb\nmaxmemory-policy allkeys-lru";
    assert_eq!(warnings(&Server::with(evicting)), 1);
    for lines in [
        "maxmemory-policy allkeys-lru",
        "maxmemory 1gb\nmaxmemory-policy volatile-lru",
        "maxmemory 1gb\nmaxmemory-policy allkeys-lru\ndlock.allow-eviction yes",
    ] {
        assert_eq!(warnings(&Server::with(lines)), 0, "{lines}");
    }
}

#[test]
fn evicting_policy_is_logged_when_set() {
    let (server, mut client) = start();
    client.config_set("maxmemory-policy", "allkeys-lru");
    assert_eq!(warnings(&server), 0, "without a limit nothing is evicted");
    client.config_set("maxmemory", "1gb");
    assert_eq!(warnings(&server), 1);
    client.config_set("maxmemory-policy", "allkeys-lfu");
    assert_eq!(warnings(&server), 1, "locks could be evicted before as well");
    client.config_set("maxmemory-policy", "noeviction");
    client.config_set("maxmemory-policy", "allkeys-random");
    assert_eq!(warnings(&server), 2);
}

#[test]
fn flush_frees_memory_of_locks() {
    const LOCKS: usize = 5_000;
    const NAME_BYTES: usize = 500;
    const FLUSHES: [&str; 4] = ["FLUSHDB SYNC", "FLUSHDB ASYNC", "FLUSHALL SYNC", "FLUSHALL ASYNC"];
    let (_server, mut client) = start();
    let used = |client: &mut Client| client.server_number::<usize>("memory", "used_memory");
    for command in FLUSHES {
        let before = used(&mut client);
        for n in 0..LOCKS {
            client.acquire(&format!("{n:0NAME_BYTES$} alice 60000"));
        }
        client.ok(command);
        wait_for("less memory than the names of the locks take", || {
            used(&mut client) < before + LOCKS * NAME_BYTES / 2
        });
    }
}
