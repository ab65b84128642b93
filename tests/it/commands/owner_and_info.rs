//! DLOCK.OWNER and DLOCK.INFO: their replies, and that they have no side effects.

use dlock_testkit::{pause, start};

use crate::fixtures::held_by_alice;

#[test]
fn info_shows_mutex() {
    let (_server, mut client) = start();
    let fence = client.acquire("door alice 10000").fence;
    client.acquire("door alice 10000 REQID r1");
    let lock = client.lock("door");
    assert_eq!((lock.limit, lock.waiting, lock.waiters), (1, 0, vec![]));
    let [holder] = lock.holders.as_slice() else {
        panic!("one holder")
    };
    let expected = (&b"alice"[..], fence, 2);
    assert_eq!((holder.owner.as_slice(), holder.fence, holder.holds), expected);
    assert!(holder.lease_ms <= 10_000 && holder.lease_ms > 5_000, "{holder:?}");
    assert!(holder.held_ms < 5_000, "{holder:?}");
}

#[test]
fn info_lists_holders_in_grant_order() {
    let (_server, mut client) = start();
    let fences: Vec<u64> = ["zoe", "alice", "mary"]
        .map(|owner| client.acquire(&format!("door {owner} 10000 LIMIT 5")).fence)
        .into();
    client.acquire("door zoe 10000 LIMIT 5");
    let lock = client.lock("door");
    assert_eq!(lock.owners(), ["zoe", "alice", "mary"]);
    let found = lock.holders.iter().map(|holder| holder.fence).collect::<Vec<_>>();
    assert_eq!(found, fences);
    let found = lock.holders.iter().map(|holder| holder.holds).collect::<Vec<_>>();
    assert_eq!(found, [2, 1, 1]);
}

#[test]
fn info_shows_smallest_limit_of_holders() {
    let (_server, mut client) = start();
    client.acquire("door alice 10000 SHARED");
    assert_eq!(client.lock("door").limit, -1);
    client.acquire("door bob 10000 LIMIT 7");
    client.acquire("door carol 10000 LIMIT 9");
    assert_eq!(client.lock("door").limit, 7);
    client.release("door bob");
    assert_eq!(client.lock("door").limit, 9);
    client.release("door carol");
    assert_eq!(client.lock("door").limit, -1);
}

#[test]
fn info_lease_falls_while_held_time_grows() {
    let (_server, mut client) = held_by_alice();
    let before = client.lock("door").holders.remove(0);
    pause(30);
    let after = client.lock("door").holders.remove(0);
    assert!(after.lease_ms <= before.lease_ms - 29, "{before:?} {after:?}");
    assert!(after.held_ms >= before.held_ms + 29, "{before:?} {after:?}");
    // Both are rounded down, so together they miss at most 2 ms of the lease.
    let is_expected = (59_998..=60_000).contains(&(after.lease_ms + after.held_ms));
    assert!(is_expected, "{after:?}");
}

#[test]
fn reentry_keeps_held_time() {
    let (_server, mut client) = held_by_alice();
    pause(30);
    client.acquire("door alice 60000");
    assert!(client.lock("door").holder("alice").held_ms >= 29);
}

#[test]
fn reads_break_no_watch_and_leave_nothing_to_save() {
    let (server, mut client) = start();
    client.acquire("door alice 10000");
    let changes = client.server_info("persistence", "rdb_changes_since_last_save");
    let mut watcher = server.client();
    watcher.ok("WATCH door free");
    for key in ["door", "free"] {
        client.owner(key);
        client.find_lock(key);
    }
    watcher.ok("MULTI");
    watcher.ask::<String>("PING");
    let executed: Option<Vec<String>> = watcher.ask("EXEC");
    assert_eq!(executed, Some(vec!["PONG".into()]));
    let value = client.server_info("persistence", "rdb_changes_since_last_save");
    assert_eq!(value, changes);
}
