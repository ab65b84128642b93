//! What one request may cost where there are many holders, grants or waiters. The bounds are orders of magnitude.

use dlock_testkit::{Client, Waiter, start};

use crate::fixtures::held_by_alice;

/// A busy machine disturbs some attempts, not all.
const ATTEMPTS: usize = 10;

/// The microseconds that the server spent in `command` while `work` ran.
fn server_usec(client: &mut Client, command: &str, work: impl FnOnce(&mut Client)) -> u64 {
    client.ok("CONFIG RESETSTAT");
    work(client);
    client.command_stat(command, "usec")
}

#[test]
fn first_waiter_of_lock_with_many_holders_costs_little_more_than_refused_request() {
    let (_server, mut client) = start();
    client.restore_lock_with_holders("door", 20_000);
    let mut usec = |request: &str| {
        let attempts = (0..ATTEMPTS).map(|_| {
            server_usec(&mut client, "dlock.acquire", |client| {
                assert!(client.try_acquire(request).is_none());
            })
        });
        attempts.min().expect("an attempt")
    };
    let refused = usec("door bob 1000");
    let waits = usec("door bob 1000 BLOCK 1");
    let is_expected = waits < refused * 5;
    assert!(is_expected, "{waits} us, a refused request takes {refused} us");
}

/// A request does not wait until hundreds of queues are served that a FLUSHALL made due.
#[test]
fn search_while_too_many_queues_are_due_is_abandoned_and_request_waits() {
    const QUEUES: usize = 600;
    let (server, mut client) = start();
    client.acquire("gate alice 60000");
    let mut waiters = vec![server.send_acquire("gate bob 60000 BLOCK 0")];
    for n in 0..QUEUES {
        client.acquire(&format!("door{n} holder 60000"));
        waiters.push(server.send_acquire(&format!("door{n} waiter{n} 60000 BLOCK 0")));
    }
    client.wait_for_queue("gate", 1);
    (0..QUEUES).for_each(|n| client.wait_for_queue(&format!("door{n}"), 1));
    let acquire = "DLOCK.ACQUIRE room";
    client.batch(&[
        // In a transaction, because Redis 8 otherwise flushes in the background and serves the queues meanwhile.
        "MULTI".to_owned(),
        "FLUSHALL".to_owned(),
        "EXEC".to_owned(),
        format!("{acquire} carol 60000"),
        format!("{acquire} alice 60000 BLOCK 1"),
    ]);
    assert_eq!(client.stat("dlock_deadlock_searches_abandoned"), 1);
    waiters.iter_mut().for_each(|waiter| _ = waiter.granted());
    assert!(client.try_acquire("room alice 60000 BLOCK 1").is_none());
    assert_eq!(client.stat("dlock_deadlock_searches_abandoned"), 1);
}

#[test]
fn request_ids_cost_little_with_many_grants_in_flight() {
    const READERS: usize = 1_000;
    let (server, mut client) = held_by_alice();
    // One transaction: the server replies to none of the readers before it ends.
    let mut usec = |option: &str| {
        let _readers: Vec<Waiter> = (0..READERS)
            .map(|n| server.send_acquire(&format!("door owner{n} 60000 SHARED BLOCK 0 REQID r")))
            .collect();
        client.wait_for_queue("door", READERS as i64);
        let mut commands = vec!["MULTI".to_owned(), "DLOCK.RELEASE door alice".to_owned()];
        commands.extend((0..3_000).map(|_| format!("DLOCK.ACQUIRE gate bob 60000 {option}")));
        commands.push("EXEC".to_owned());
        let usec = server_usec(&mut client, "exec", |client| {
            client.batch(&commands);
        });
        // The readers are served in steps, between which a server with threads for I/O takes commands.
        client.wait_for_queue("door", 0);
        client.ask::<i64>("DEL door gate");
        client.acquire("door alice 60000");
        usec
    };
    let attempts: Vec<(u64, u64)> = (0..3).map(|_| (usec(""), usec("REQID r"))).collect();
    let cheap = attempts.iter().any(|(without, with)| *with < without * 8);
    assert!(cheap, "microseconds without and with request ids: {attempts:?}");
}
