//! Out of memory, and eviction policies that could evict locks.

use dlock_testkit::{Server, start, start_with, wait_for};

use crate::fixtures::held_by_alice;

#[test]
fn out_of_memory_refuses_acquire_only() {
    let (_server, mut client) = held_by_alice();
    client.acquire("door alice 60000");
    client.config_set("maxmemory", "1");
    client.assert_error("OOM", "DLOCK.ACQUIRE door alice 60000");
    client.assert_error("OOM", "DLOCK.ACQUIRE gate bob 60000");
    assert_eq!(client.extend("door alice 90000"), 90_000);
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
    assert_eq!(client.lock("door").holder("alice").holds, 2);
    assert_eq!(client.release("door alice"), 1);
    assert_eq!(client.release("door alice ALL"), 0);
    client.config_set("maxmemory", "0");
    client.acquire("gate bob 60000");
}

#[test]
fn out_of_memory_does_not_stop_sweep() {
    let (_server, mut client) = start();
    client.acquire("door alice 300");
    client.config_set("maxmemory", "1");
    wait_for("the sweep", || !client.exists("door"));
}

#[test]
fn volatile_policies_never_evict_locks() {
    let (_server, mut client) = held_by_alice();
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        client.config_set("maxmemory-policy", policy);
        client.config_set("maxmemory", "1gb");
        client.acquire(&format!("{policy} alice 60000"));
        client.config_set("maxmemory", "1");
        // Each refused write is an attempt to evict something.
        assert_eq!(client.error_code("SET text value"), "OOM", "{policy}");
        assert_eq!(client.owner("door").as_deref(), Some("alice"), "{policy}");
        client.config_set("maxmemory", "0");
    }
}

#[test]
fn volatile_policies_evict_ttl_keys_and_keep_locks() {
    let (_server, mut client) = start();
    let fence = client.acquire("door alice 60000").fence;
    let filling = "x".repeat(10_000);
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        let used: u64 = client.server_number("memory", "used_memory");
        client.config_set("maxmemory-policy", policy);
        client.config_set("maxmemory", &(used + 500_000).to_string());
        client.ok("CONFIG RESETSTAT");
        let mut keys = 0..;
        wait_for("evictions", || {
            let key = keys.next().expect("it never ends");
            let _ = client.call(&format!("SET filling{key} {filling} EX 1000"));
            client.server_info("stats", "evicted_keys") != "0"
        });
        let standing = client.lock("door").standing();
        assert_eq!(standing, [("alice".into(), fence, 1)], "{policy}");
        assert_eq!(client.stat("dlock_evictable"), 0, "{policy}");
        client.config_set("maxmemory", "0");
    }
}

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
fn evicting_policy_refuses_new_owners_only() {
    let (_server, mut client) = start();
    client.acquire("door alice 60000 SHARED");
    client.acquire("door alice 60000 SHARED REQID r1");
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        client.config_set("maxmemory-policy", policy);
        client.config_set("maxmemory", "1gb");
        let code = client.error_code("DLOCK.ACQUIRE gate bob 60000");
        assert_eq!(code, "EVICTABLE", "{policy}");
        let code = client.error_code("DLOCK.ACQUIRE door bob 60000 SHARED");
        assert_eq!(code, "EVICTABLE", "{policy}");
        assert!(!client.exists("gate"), "{policy}");
        assert_eq!(client.acquire("door alice 60000 SHARED").holds, 3, "{policy}");
        let holds = client.acquire("door alice 60000 SHARED REQID r1").holds;
        assert_eq!(holds, 3, "{policy}");
        assert_eq!(client.release("door alice"), 2, "{policy}");
        assert!(client.extend("door alice 70000") > 60_000, "{policy}");
        assert_eq!(client.owner("door").as_deref(), Some("alice"), "{policy}");
        assert_eq!(client.stat("dlock_evictable"), 1, "{policy}");
        client.config_set("maxmemory", "0");
        client.acquire(&format!("{policy} bob 60000"));
    }
    assert_eq!(client.release("door alice ALL"), 0);
}

#[test]
fn allow_eviction_permits_evicting_policy() {
    let (_server, mut client) =
        start_with("maxmemory 1gb\nmaxmemory-policy allkeys-lru\ndlock.allow-eviction yes");
    client.acquire("door alice 60000");
    client.config_set("dlock.allow-eviction", "no");
    client.assert_error("EVICTABLE", "DLOCK.ACQUIRE gate bob 60000");
    client.config_set("dlock.allow-eviction", "yes");
    client.acquire("gate bob 60000");
}

#[test]
fn evicting_policy_in_config_refuses_acquire_from_start() {
    let server = Server::with("maxmemory 1gb\nmaxmemory-policy allkeys-random");
    let code = server.client().error_code("DLOCK.ACQUIRE door alice 60000");
    assert_eq!(code, "EVICTABLE");
    let server = Server::with("maxmemory-policy allkeys-random");
    server.client().acquire("door alice 60000");
}

#[test]
fn safe_policy_grants_to_new_owners_again() {
    let (_server, mut client) = start_with("maxmemory 1gb\nmaxmemory-policy allkeys-lru");
    for (name, safe, evicting) in [
        ("maxmemory-policy", "noeviction", "allkeys-lru"),
        ("maxmemory-policy", "volatile-ttl", "allkeys-lru"),
        ("maxmemory", "0", "1gb"),
    ] {
        client.assert_error("EVICTABLE", "DLOCK.ACQUIRE door alice 60000");
        client.config_set(name, safe);
        client.acquire("door alice 60000");
        client.release("door alice");
        client.config_set(name, evicting);
    }
}

#[test]
fn evicted_lock_is_free_and_next_fence_is_larger() {
    let (_server, mut client) = start_with("maxmemory-policy allkeys-random\ndlock.allow-eviction yes");
    let fence = client.acquire("door alice 60000").fence;
    client.config_set("maxmemory", "1");
    // Whether or not it refuses this write, the server evicts all it can.
    wait_for("the eviction", || {
        let _ = client.call("SET text value");
        !client.exists("door")
    });
    client.config_set("maxmemory", "0");
    client.assert_error("NOTHELD", "DLOCK.RELEASE door alice");
    assert!(client.acquire("door bob 60000").fence > fence);
    assert_eq!(client.stat("dlock_locks"), 1);
}
