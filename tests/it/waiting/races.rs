//! Timeouts, releases, lease ends and disconnects at the same time: each waiter gets exactly one reply.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::{Client, Reply, Waiter, pause, start, start_with, wait_for};

use crate::fixtures::{held_by_alice, wait_until_none_blocked};

/// The number of granted and of timed out waiters. Any other reply is wrong, and each connection must still work.
#[track_caller]
fn tally(waiters: &mut [Waiter]) -> (usize, usize) {
    let mut tally = (0, 0);
    for waiter in waiters {
        match waiter.reply() {
            Reply::Granted(_) => tally.0 += 1,
            Reply::Null => tally.1 += 1,
            other => panic!("{other:?}"),
        }
    }
    tally
}

/// `lock{n}` is held by bob if its waiter was granted, and free if that timed out.
#[track_caller]
fn assert_owners_match_replies(client: &mut Client, waiters: &mut [Waiter]) {
    for (n, waiter) in waiters.iter_mut().enumerate() {
        let holder = match waiter.reply() {
            Reply::Granted(_) => Some("bob".to_owned()),
            Reply::Null => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(client.owner(&format!("lock{n}")), holder, "lock{n}");
    }
}

#[track_caller]
fn assert_none_left(client: &mut Client) {
    wait_until_none_blocked(client);
    assert_eq!(client.stat("dlock_grants_rolled_back"), 0);
}

#[test]
fn racing_grants_and_timeouts_add_up() {
    const WAITERS: usize = 200;
    let (server, mut client) = start();
    for round in 0..4 {
        client.acquire("door first 60000");
        let acquired = client.stat("dlock_acquired");
        let timeouts = client.stat("dlock_wait_timeouts");
        let mut waiters: Vec<Waiter> = (0..WAITERS).map(|_| Waiter::connect(&server)).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            waiter.acquire(&format!("door owner{n} 60000 BLOCK {}", 5 + n * round / 2));
        }
        // Releases each holder until the lock is free.
        while let Some(owner) = client.owner("door") {
            client.release(&format!("door {owner}"));
            pause(1);
        }
        // A request that found the lock free still holds it: the waiters queued after it time out, or are granted.
        wait_for("the end of all waiting", || {
            if let Some(owner) = client.owner("door") {
                client.release(&format!("door {owner}"));
            }
            client.stat("dlock_acquired") + client.stat("dlock_wait_timeouts") - acquired - timeouts
                == WAITERS as i64
        });
        let (granted, timed_out) = tally(&mut waiters);
        assert_eq!(granted + timed_out, WAITERS);
        assert_eq!(client.stat("dlock_acquired") - acquired, granted as i64);
        assert_eq!(client.stat("dlock_wait_timeouts") - timeouts, timed_out as i64);
        if let Some(owner) = client.owner("door") {
            client.release(&format!("door {owner}"));
        }
        assert!(!client.exists("door"));
        assert_none_left(&mut client);
    }
}

#[test]
fn timeout_and_release_in_one_loop_pass_give_one_reply() {
    const LOCKS: usize = 50;
    let (server, mut client) = start();
    let mut waiters: Vec<Waiter> = Vec::new();
    for n in 0..LOCKS {
        client.acquire(&format!("lock{n} alice 60000"));
        waiters.push(server.waiter(&format!("lock{n} bob 60000 BLOCK 800")));
    }
    // The timeouts expire and the releases arrive while the server sleeps: it finds both when it wakes.
    let mut sleeper = server.client();
    sleeper.send("DEBUG SLEEP 1.2");
    pause(50);
    let releases: Vec<String> = (0..LOCKS)
        .map(|n| format!("DLOCK.RELEASE lock{n} alice"))
        .collect();
    client.batch(&releases);
    assert_owners_match_replies(&mut client, &mut waiters);
    assert_none_left(&mut client);
}

#[test]
fn timeout_and_lease_end_in_one_loop_pass_give_one_reply() {
    const LOCKS: usize = 50;
    let (server, mut client) = start();
    let mut waiters: Vec<Waiter> = (0..LOCKS).map(|_| Waiter::connect(&server)).collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.send(&format!(
            "DLOCK.ACQUIRE lock{n} alice 500\r\nDLOCK.ACQUIRE lock{n} bob 60000 BLOCK 500"
        ));
        waiter.next_reply();
    }
    assert_owners_match_replies(&mut client, &mut waiters);
    assert_none_left(&mut client);
}

#[test]
fn unblock_at_timeout_gives_one_reply() {
    const WAITERS: usize = 30;
    let (server, mut client) = held_by_alice();
    let mut sleeper = server.client();
    let mut waiters: Vec<Waiter> = (0..WAITERS).map(|_| Waiter::connect(&server)).collect();
    let unblocks = waiters
        .iter_mut()
        .map(|waiter| format!("CLIENT UNBLOCK {} TIMEOUT", waiter.id()));
    let unblocks: Vec<String> = unblocks.collect();
    for (n, waiter) in waiters.iter_mut().enumerate() {
        waiter.acquire(&format!("door owner{n} 60000 BLOCK 3000"));
    }
    client.wait_for_queue("door", WAITERS as i64);
    sleeper.send("DEBUG SLEEP 3.1");
    pause(50);
    client.batch(&unblocks);
    assert_eq!(tally(&mut waiters), (0, WAITERS));
    assert_none_left(&mut client);
}

#[test]
fn mutex_is_never_held_by_two_threads() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 80;
    let (server, mut client) = start();
    let (granted, timed_out) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (held, last_fence) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut waiter = Waiter::connect(&server);
            let (granted, timed_out, held, last_fence) = (&granted, &timed_out, &held, &last_fence);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    waiter.acquire(&format!("door owner{thread} 60000 BLOCK {}", 1 + round % 5));
                    match waiter.reply() {
                        Reply::Granted(grant) => {
                            assert!(!held.swap(true, Ordering::SeqCst), "two hold a mutex");
                            let before = last_fence.swap(grant.fence, Ordering::SeqCst);
                            assert!(grant.fence > before && grant.holds == 1);
                            granted.fetch_add(1, Ordering::SeqCst);
                            thread::sleep(Duration::from_micros(500));
                            held.store(false, Ordering::SeqCst);
                            let left = waiter.ask(&format!("DLOCK.RELEASE door owner{thread}"));
                            assert_eq!(left, redis::Value::Int(0));
                        }
                        Reply::Null => _ = timed_out.fetch_add(1, Ordering::SeqCst),
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    let (granted, timed_out) = (granted.into_inner(), timed_out.into_inner());
    assert_eq!(granted + timed_out, THREADS * ROUNDS);
    assert!(granted > 0);
    assert_eq!(client.stat("dlock_acquired"), granted as i64);
    assert_eq!(client.stat("dlock_released"), granted as i64);
    assert_eq!(client.stat("dlock_wait_timeouts"), timed_out as i64);
    assert!(!client.exists("door"));
    assert_none_left(&mut client);
}

#[test]
fn timeout_is_kept_at_hz_1() {
    let (server, mut client) = start_with("hz 1");
    client.acquire("door alice 60000");
    let wait = || {
        let start = Instant::now();
        server.send_acquire("door bob 60000 BLOCK 300").assert_null();
        assert!(start.elapsed() >= Duration::from_millis(300));
        start.elapsed()
    };
    // If the ticks, one a second, ended the waits, each but the first would take a second.
    wait();
    wait_for("a timeout between two ticks", || {
        wait() < Duration::from_millis(900)
    });
}
