//! Many waiters: all are granted in order, and those that disconnect leak nothing.

use std::time::{Duration, Instant};

use dlock_testkit::{Client, Reply, Server, Waiter, assert_elapsed_at_most, start, wait_for};

use crate::fixtures::{held_by_alice, wait_until_none_blocked};

/// Clients that wait for `key`, one for each number.
fn many_waiters(server: &Server, key: &str, numbers: std::ops::Range<usize>, options: &str) -> Vec<Waiter> {
    numbers
        .map(|n| server.send_acquire(&format!("{key} owner{n} 60000 BLOCK {options}")))
        .collect()
}

/// The memory of the server once all other clients are freed.
fn settled_memory(client: &mut Client) -> i64 {
    wait_for("the other clients to be gone", || {
        client.server_info("clients", "connected_clients") == "1"
    });
    client.server_number("memory", "used_memory")
}

#[test]
fn thousand_waiters_of_one_lock_are_all_granted() {
    const WAITERS: usize = 1000;
    let (server, mut client) = held_by_alice();
    let mut waiters = many_waiters(&server, "door", 0..WAITERS, "0");
    client.wait_for_queue("door", WAITERS as i64);
    let start = Instant::now();
    let mut released = 0;
    while let Some(owner) = client.owner("door") {
        client.release(&format!("door {owner}"));
        released += 1;
    }
    assert_elapsed_at_most(Duration::from_secs(2), start);
    assert_eq!(released, WAITERS + 1, "each was granted once");
    let mut fences: Vec<u64> = waiters.iter_mut().map(|waiter| waiter.granted().fence).collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), WAITERS);
    assert_eq!(client.stat("dlock_grants_from_queue"), WAITERS as i64);
    wait_until_none_blocked(&mut client);
}

#[test]
fn many_locks_with_few_waiters_each_are_all_granted() {
    const KEYS: usize = 200;
    const WAITERS: usize = 10;
    let (server, mut client) = start();
    let mut waiters = Vec::new();
    for key in 0..KEYS {
        client.acquire(&format!("lock{key} alice 60000"));
        let owners = key * WAITERS..(key + 1) * WAITERS;
        waiters.push(many_waiters(&server, &format!("lock{key}"), owners, "0"));
    }
    wait_for("all queues", || {
        client.stat("dlock_waiters") == (KEYS * WAITERS) as i64
    });
    assert_eq!(client.stat("dlock_contended_locks"), KEYS as i64);
    let start = Instant::now();
    for _ in 0..=WAITERS {
        let releases: Vec<String> = (0..KEYS)
            .map(|key| {
                let owner = client.owner(&format!("lock{key}")).expect("it is held");
                format!("DLOCK.RELEASE lock{key} {owner}")
            })
            .collect();
        client.batch(&releases);
    }
    assert_elapsed_at_most(Duration::from_secs(3), start);
    waiters
        .iter_mut()
        .flatten()
        .for_each(|waiter| _ = waiter.granted());
    assert_eq!(client.ask::<i64>("DBSIZE"), 0);
    wait_until_none_blocked(&mut client);
}

#[test]
fn one_release_grants_to_thousand_readers() {
    const READERS: usize = 1000;
    let (server, mut client) = held_by_alice();
    let mut readers: Vec<Waiter> = (0..READERS)
        .map(|n| server.send_acquire(&format!("door owner{n} 60000 SHARED BLOCK 0")))
        .collect();
    client.wait_for_queue("door", READERS as i64);
    client.release("door alice");
    // Not in one step, in which nobody else would be served.
    wait_for("all grants", || client.lock("door").holders.len() == READERS);
    readers.iter_mut().for_each(|reader| _ = reader.granted());
    wait_until_none_blocked(&mut client);
}

#[test]
fn mass_disconnect_leaks_no_memory() {
    const WAITERS: usize = 500;
    /// Leaking each waiter's owner and key would be more, over all rounds.
    const SLACK: i64 = 150_000;
    let (server, mut client) = start();
    client.acquire("door alice 600000");
    // The first round allocates what the server keeps: tables, buffers.
    let mut before = 0;
    for round in 0..7 {
        let waiters = many_waiters(&server, "door", 0..WAITERS, "0");
        client.wait_for_queue("door", WAITERS as i64);
        if round % 2 == 0 {
            waiters.into_iter().for_each(Waiter::close);
        } else {
            client.ask::<i64>("CLIENT KILL TYPE normal SKIPME yes");
            for mut waiter in waiters {
                assert_eq!(waiter.reply(), Reply::Closed);
            }
        }
        wait_until_none_blocked(&mut client);
        let used = settled_memory(&mut client);
        if round == 0 {
            before = used;
        }
        assert!(used < before + SLACK, "round {round}: {before} bytes, now {used}");
    }
    assert_eq!(client.lock("door").owners(), ["alice"]);
    assert_eq!(client.stat("dlock_grants_from_queue"), 0);
}

#[test]
fn mass_timeout_leaves_no_state() {
    const WAITERS: usize = 1000;
    let (server, mut client) = start();
    client.acquire("door alice 600000");
    let mut waiters = many_waiters(&server, "door", 0..WAITERS, "500");
    waiters.iter_mut().for_each(Waiter::assert_null);
    wait_until_none_blocked(&mut client);
    assert_eq!(client.stat("dlock_wait_timeouts"), WAITERS as i64);
    drop(waiters);
    settled_memory(&mut client);
    client.release("door alice");
    assert!(!client.exists("door"));
}

#[test]
fn grants_to_killed_readers_are_all_rolled_back() {
    // In one step.
    const READERS: usize = 128;
    let (server, mut client) = held_by_alice();
    let mut commands = vec!["DLOCK.RELEASE door alice".to_owned()];
    let mut readers: Vec<Waiter> = (0..READERS)
        .map(|n| {
            let mut reader = Waiter::connect(&server);
            if n % 2 == 0 {
                commands.push(format!("CLIENT KILL ID {}", reader.id()));
            }
            reader.acquire(&format!("door owner{n} 60000 SHARED BLOCK 0"));
            reader
        })
        .collect();
    client.wait_for_queue("door", READERS as i64);
    client.batch(&commands);
    for (n, reader) in readers.iter_mut().enumerate() {
        match reader.reply() {
            Reply::Closed => assert_eq!(n % 2, 0),
            Reply::Granted(_) => assert_eq!(n % 2, 1),
            other => panic!("{other:?}"),
        }
    }
    wait_for("the rollbacks", || {
        client.stat("dlock_grants_rolled_back") == (READERS / 2) as i64
    });
    assert_eq!(client.lock("door").holders.len(), READERS / 2);
    wait_until_none_blocked(&mut client);
}

#[test]
fn waiters_disconnecting_during_handovers_lose_no_grant() {
    const WAITERS: usize = 600;
    let (server, mut client) = held_by_alice();
    let mut staying = Vec::new();
    let mut leaving = Vec::new();
    for n in 0..WAITERS {
        let waiter = server.send_acquire(&format!("door owner{n} 60000 BLOCK 0"));
        if n % 2 == 0 { &mut staying } else { &mut leaving }.push(waiter);
    }
    client.wait_for_queue("door", WAITERS as i64);
    let mut leaving = leaving.into_iter();
    // Some disconnect right after their grant, which is then rolled back.
    while let Some(owner) = client.owner("door") {
        leaving.by_ref().take(2).for_each(Waiter::close);
        // The owner may have disconnected meanwhile.
        let _ = client.call(&format!("DLOCK.RELEASE door {owner}"));
    }
    leaving.for_each(Waiter::close);
    staying.iter_mut().for_each(|waiter| _ = waiter.granted());
    wait_for("a free lock", || !client.exists("door"));
    wait_until_none_blocked(&mut client);
    let acquired = client.stat("dlock_acquired");
    assert_eq!(acquired, client.stat("dlock_released"));
    assert!(acquired > (WAITERS / 2) as i64);
}

#[test]
fn simultaneous_lease_ends_wake_all_waiters() {
    const LOCKS: usize = 300;
    let (server, mut client) = start();
    let mut waiters: Vec<Waiter> = (0..LOCKS)
        .map(|n| {
            client.acquire(&format!("lock{n} alice 1500"));
            server.send_acquire(&format!("lock{n} bob 60000 BLOCK 0"))
        })
        .collect();
    waiters.iter_mut().for_each(|waiter| _ = waiter.granted());
    assert_eq!(client.stat("dlock_expired"), LOCKS as i64);
    assert_eq!(client.stat("dlock_locks"), LOCKS as i64);
    wait_until_none_blocked(&mut client);
}
