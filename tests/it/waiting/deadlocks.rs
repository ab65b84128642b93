//! Requests that could never be granted are refused, and no others.

use std::time::{Duration, Instant};

use dlock_testkit::{Client, Waiter, start};

/// The request must be refused as a deadlock without side effects. Returns the parts of the cycle, sorted.
#[track_caller]
fn assert_deadlock(client: &mut Client, request: &str) -> Vec<String> {
    let key = request.split_whitespace().next().expect("a key");
    let before = (
        client.find_lock(key).map(|lock| lock.standing()),
        client.queue(key),
    );
    let counted = ["dlock_waiters", "dlock_errors_deadlock"].map(|field| client.stat(field));
    let error = client.error(&format!("DLOCK.ACQUIRE {request}"));
    assert_eq!(
        (
            client.find_lock(key).map(|lock| lock.standing()),
            client.queue(key)
        ),
        before,
        "nothing is queued"
    );
    assert_eq!(client.stat("dlock_waiters"), counted[0]);
    assert_eq!(client.stat("dlock_errors_deadlock"), counted[1] + 1);
    let cycle = error.strip_prefix("DEADLOCK ").expect("the first word");
    let cycle = cycle.split_once(": ").map_or(cycle, |(cycle, _)| cycle);
    let mut parts: Vec<String> = cycle.split(", ").map(str::to_owned).collect();
    // Where the cycle begins does not matter.
    parts.sort_unstable();
    parts
}

#[test]
fn deadlock_error_names_owners_of_locks_with_very_long_names() {
    let (server, mut client) = start();
    let [door, gate] = ["d", "g"].map(|letter| letter.repeat(70_000));
    client.acquire(&format!("{door} alice 60000"));
    client.acquire(&format!("{gate} bob 60000"));
    let _bob = server.waiter(&format!("{door} bob 60000 BLOCK 0"));
    let expected = ["alice waits for bob", "bob waits for alice"];
    let request = format!("{gate} alice 60000 BLOCK 0");
    assert_eq!(assert_deadlock(&mut client, &request), expected);
}

#[test]
fn deadlock_error_lists_cycle_of_three() {
    let (server, mut client) = start();
    for request in ["a alice 60000", "b bob 60000", "c carol 60000"] {
        client.acquire(request);
    }
    let _alice = server.waiter("b alice 60000 BLOCK 0");
    let mut bob = server.waiter("c bob 60000 BLOCK 0");
    let expected = [
        "alice waits for bob",
        "bob waits for carol",
        "carol waits for alice",
    ];
    assert_eq!(assert_deadlock(&mut client, "a carol 60000 BLOCK 0"), expected);
    client.release("c carol");
    bob.granted();
}

#[test]
fn deadlock_error_of_long_cycle_names_eight_owners() {
    let (server, mut client) = start();
    let owners = 30;
    for n in 0..owners {
        client.acquire(&format!("lock{n} owner{n} 60000"));
    }
    let _waiters: Vec<Waiter> = (1..owners)
        .map(|n| server.waiter(&format!("lock{} owner{n} 60000 BLOCK 0", n - 1)))
        .collect();
    let last = owners - 1;
    let error = client.error(&format!("DLOCK.ACQUIRE lock{last} owner0 60000 BLOCK 0"));
    let expected = "DEADLOCK owner0 waits for owner29, owner29 waits for owner28, owner28 waits for owner27, \
                    owner27 waits for owner26, owner26 waits for owner25, owner25 waits for owner24, \
                    owner24 waits for owner23, and 22 more: release what this owner holds, then try again";
    assert_eq!(error, expected);
}

#[test]
fn flushed_locks_are_no_deadlock() {
    const LOCKS: usize = 800;
    let (server, mut client) = start();
    let mut others: Vec<Waiter> = Vec::new();
    for n in 0..LOCKS {
        client.acquire(&format!("lock{n} alice 60000"));
        others.push(server.send_acquire(&format!("lock{n} owner{n} 60000 BLOCK 0")));
    }
    client.acquire("the-last alice 60000");
    let mut bob = server.waiter("the-last bob 60000 BLOCK 0");
    // One packet: the server has had no time to process that many queues.
    let mut alice = Waiter::connect(&server);
    alice.send("FLUSHALL\r\nDLOCK.ACQUIRE gate bob 60000\r\nDLOCK.ACQUIRE gate alice 60000 BLOCK 0");
    alice.next_reply();
    alice.next_reply();
    assert_eq!(client.queue("gate"), ["alice"], "bob is granted, alice waits");
    bob.granted();
    others.iter_mut().for_each(|other| _ = other.granted());
    client.release("gate bob");
    alice.granted();
}

#[test]
fn deadlock_error_names_no_keys_and_cuts_owners() {
    let (server, mut client) = start();
    let long = format!("alice{}", "é".repeat(200));
    client.acquire(&format!("secret:payroll {long} 60000"));
    client.acquire("secret:b bob 60000");
    let _alice = server.waiter(&format!("secret:b {long} 60000 BLOCK 0"));
    let error = client.error("DLOCK.ACQUIRE secret:payroll bob 60000 BLOCK 0");
    let shown = format!(r"alice{}\xc3...", r"\xc3\xa9".repeat(29));
    let cycle = format!("DEADLOCK bob waits for {shown}, {shown} waits for bob: ");
    assert!(error.starts_with(&cycle) && !error.contains("secret"), "{error}");
}

/// At most once a second, so that a client cannot fill the log.
#[test]
fn deadlock_log_line_names_locks_at_most_once_a_second() {
    let (server, mut client) = start();
    client.acquire("orders:1 bob 60000");
    client.ok("SELECT 3");
    client.acquire("ö:2 alice 60000");
    let _bob = server.waiter_in(3, "ö:2 bob 60000 BLOCK 0");
    client.ok("SELECT 0");
    let line = "deadlock: alice waits for bob (\"orders:1\" in db0), \
                bob waits for alice (\"\\xc3\\xb6:2\" in db3)\n";
    let request = "DLOCK.ACQUIRE orders:1 alice 60000 BLOCK 0";
    let began = Instant::now();
    let mut requests = 0;
    while server.log().matches("deadlock: ").count() < 2 {
        client.assert_error("DEADLOCK", request);
        requests += 1;
    }
    assert!(
        requests > 2 && began.elapsed() >= Duration::from_secs(1),
        "{requests}"
    );
    assert_eq!(server.log().matches(line).count(), 2, "{}", server.log());
}
