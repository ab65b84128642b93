//! A flush that breaks cycles, and the log. Cycles are in `tests/rules`, their errors in `core/src/tests`.

use std::time::{Duration, Instant};

use dlock_testkit::{Waiter, start};

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
