//! Getting locks and giving them back, with every option.

use std::time::{Duration, Instant};

use crate::support::{Journal, assert_lost, locks, ms, soon, until, until_free};
use dlock_testkit::{SLOW_MACHINE, Server, start, start_with};
use redis_dlock_client::{Error, LockInfo, Locks, Lost, Owner, RunError, redis};

#[tokio::test]
async fn lock_is_acquired_and_released() {
    let (server, mut client) = start();
    let guard = locks(&server).acquire("door").await.unwrap();
    let lock = client.lock("door");
    assert_eq!(lock.standing(), [(guard.owner().to_string(), guard.fence(), 1)]);
    assert_eq!(guard.key(), b"door");
    assert!(guard.is_held());
    let lease = Duration::from_secs(30);
    let is_expected = guard.remaining() < lease && guard.remaining() > lease - SLOW_MACHINE;
    assert!(is_expected, "{:?}", guard.remaining());
    guard.release().await.unwrap();
    assert!(client.find_lock("door").is_none());
}

#[tokio::test]
async fn acquisition_has_unique_owner_and_larger_fence() {
    let server = Server::start();
    let lock = locks(&server).lock("door");
    let first = lock.acquire().await.unwrap();
    let (owner, fence) = (first.owner().clone(), first.fence());
    first.release().await.unwrap();
    let second = lock.acquire().await.unwrap();
    assert_ne!(second.owner(), &owner);
    assert!(second.fence() > fence);
}

#[tokio::test]
async fn held_lock_is_none_at_once_or_times_out() {
    let server = Server::start();
    server.client().acquire("door alice 60000");
    let lock = locks(&server).lock("door");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let start = Instant::now();
    let refused = lock.timeout(ms(300)).acquire().await.unwrap_err();
    let took = start.elapsed();
    let is_expected = matches!(refused, Error::Timeout { last: None, .. });
    assert!(is_expected, "{refused:?}");
    assert!(took >= ms(300) && took < ms(300) + SLOW_MACHINE, "{took:?}");
    until("the request to leave", || server.client().waiting("door") == 0).await;
}

#[tokio::test]
async fn waiters_are_granted_in_order_of_arrival() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let locks = locks(&server);
    let mut waiters = Vec::new();
    for n in 0..5 {
        let lock = locks.lock("door").owner(format!("waiter{n}"));
        waiters.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
        until("a place in the queue", || client.waiting("door") == n + 1).await;
    }
    client.release("door alice");
    let mut fence = 0;
    for (n, waiter) in waiters.into_iter().enumerate() {
        let guard = soon("the next turn", waiter).await.unwrap();
        assert_eq!(client.owner("door"), Some(format!("waiter{n}")));
        assert!(guard.fence() > fence);
        fence = guard.fence();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn lease_starts_after_the_wait() {
    let (server, mut client) = start();
    client.acquire("door alice 700");
    let lock = locks(&server).lock("door").lease(ms(10_000)).max_hold(ms(10_000));
    let guard = lock.acquire().await.unwrap();
    let remaining = guard.remaining();
    let lease_ms = client.lock("door").holders[0].lease_ms;
    assert!(remaining <= ms(lease_ms) + ms(20), "{remaining:?} of {lease_ms}");
    assert!(remaining > ms(10_000) - SLOW_MACHINE, "{remaining:?}");
}

#[tokio::test]
async fn shared_lock_and_semaphore_admit_their_limit() {
    let server = Server::start();
    let locks = locks(&server);
    let reading = locks.lock("book").shared();
    let readers = [reading.acquire().await.unwrap(), reading.acquire().await.unwrap()];
    assert!(locks.lock("book").try_acquire().await.unwrap().is_none());
    drop(readers);
    let pool = locks.lock("pool").limit(2);
    let first = pool.acquire().await.unwrap();
    let _second = pool.acquire().await.unwrap();
    assert!(pool.try_acquire().await.unwrap().is_none());
    first.release().await.unwrap();
    assert!(pool.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn reentrant_guards_count_holds() {
    let server = Server::start();
    let owner = Owner::unique();
    let lock = locks(&server).lock("door").owner(&owner);
    let first = lock.acquire().await.unwrap();
    // From another client, too.
    let lock = Locks::open(server.url()).unwrap().lock("door").owner(&owner);
    let second = lock.try_acquire().await.unwrap().expect("it is its own");
    assert_eq!(server.client().lock("door").holders[0].holds, 2);
    assert_eq!(first.fence(), second.fence());
    first.release().await.unwrap();
    assert!(second.is_held());
    second.release().await.unwrap();
}

#[tokio::test]
async fn info_shows_holders_and_waiters() {
    let server = Server::start();
    let lock = locks(&server).lock("door").owner("alice").lease(ms(60_000));
    assert_eq!(lock.info().await.unwrap(), None);
    let guard = lock.acquire().await.unwrap();
    let _waiter = server.waiter("door bob 60000 SHARED BLOCK 50000");
    let info = lock.info().await.unwrap().unwrap();
    assert_eq!((info.limit, info.waiting), (Some(1), 1));
    let holder = &info.holders[0];
    let expected = (guard.owner(), guard.fence(), 1);
    assert_eq!((&holder.owner, holder.fence, holder.holds), expected);
    assert!(holder.lease <= ms(60_000) && holder.lease > ms(60_000) - SLOW_MACHINE);
    let waiter = &info.waiters[0];
    assert_eq!((waiter.owner.to_string().as_str(), waiter.limit), ("bob", None));
    assert_eq!(waiter.timeout, Some(ms(50_000)));
}

#[test]
fn info_reply_is_parsed_in_both_protocols() {
    let server = Server::start();
    for (book, mut client) in [("red", server.client()), ("blue", server.client_resp3())] {
        client.acquire(&format!("{book} reader 60000 SHARED"));
        let _limited = server.waiter(&format!("{book} writer 60000 BLOCK 0"));
        let _shared = server.waiter(&format!("{book} other 60000 SHARED BLOCK 50000"));
        let info: Option<LockInfo> = redis::cmd("DLOCK.INFO")
            .arg(book)
            .query(client.connection())
            .unwrap();
        let info = info.unwrap();
        assert_eq!((info.limit, info.waiting), (None, 2));
        assert_eq!(info.holders[0].owner, Owner::from("reader"));
        let waiters: Vec<_> = info
            .waiters
            .iter()
            .map(|waiter| (waiter.owner.to_string(), waiter.limit, waiter.timeout))
            .collect();
        let expected = [
            ("writer".to_owned(), Some(1), None),
            ("other".to_owned(), None, Some(ms(50_000))),
        ];
        assert_eq!(waiters, expected);
    }
}

#[tokio::test]
async fn extend_never_shortens_lease() {
    let server = Server::start();
    let lock = locks(&server).lock("door").lease(ms(10_000));
    let guard = lock.acquire().await.unwrap();
    let left = guard.extend(ms(60_000)).await.unwrap();
    assert!(left > ms(59_000) - SLOW_MACHINE && left < ms(60_000), "{left:?}");
    assert!(guard.extend(ms(1)).await.unwrap() > ms(50_000));
}

#[tokio::test]
async fn missing_module_is_reported_with_remedy() {
    let server = Server::without_module("");
    let lock = locks(&server).lock("door");
    for error in [
        lock.try_acquire().await.map(drop).unwrap_err(),
        lock.acquire().await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::ModuleMissing { .. }), "{error:?}");
        let is_expected = error.to_string().contains("loadmodule /path/to/libdlock.so");
        assert!(is_expected, "{error}");
    }
}

#[tokio::test]
async fn permanent_error_is_returned_without_waiting() {
    let (server, mut client) = start();
    let locks = locks(&server);
    client.ok("SET text value");
    let wrong = locks.acquire("text").await.unwrap_err();
    let is_expected = matches!(&wrong, Error::Redis { error, .. } if error.code() == Some("WRONGTYPE"));
    assert!(is_expected, "{wrong:?}");
    let lock = locks.lock("door").lease(Duration::ZERO);
    let impossible = lock.acquire().await.unwrap_err();
    assert!(matches!(&impossible, Error::Invalid(_)), "{impossible:?}");
    client.ok("CONFIG SET dlock.max-waiters-per-lock 1");
    client.acquire("door alice 60000");
    let _waiter = server.waiter("door bob 60000 BLOCK 0");
    let full = locks.lock("door").timeout(ms(2_000)).acquire().await.unwrap_err();
    let is_full =
        matches!(&full, Error::Timeout { last: Some(last), .. } if matches!(**last, Error::QueueFull(_)));
    assert!(is_full && full.is_transient(), "{full:?}");
}

#[tokio::test]
async fn full_queue_is_waited_for() {
    let (server, mut client) = start_with("dlock.max-waiters-per-lock 1");
    client.acquire("door alice 60000");
    let _waiter = server.waiter("door bob 1 BLOCK 0");
    let locks = locks(&server);
    let waiting = tokio::spawn(async move { locks.acquire("door").await.map(drop) });
    until("the request to be rejected", || {
        client.stat("dlock_errors_queuefull") > 0
    })
    .await;
    client.release("door alice");
    soon("the lock", waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn deadlock_is_rejected_with_its_cycle() {
    let (server, mut client) = start();
    client.acquire("a alice 60000");
    let _waiter = {
        client.acquire("b bob 60000");
        server.waiter("a bob 60000 BLOCK 0")
    };
    let lock = locks(&server).lock("b").owner("alice");
    let refused = lock.acquire().await.unwrap_err();
    let is_expected = matches!(&refused, Error::Deadlock(circle) if circle.contains("bob waits for alice"));
    assert!(is_expected, "{refused:?}");
}

#[tokio::test]
async fn grace_rejects_try_acquire_and_delays_acquire() {
    let server = Server::with("dlock.startup-grace-ms 1500");
    let lock = locks(&server).lock("door");
    let refused = lock.try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Grace(_)), "{refused:?}");
    assert!(lock.acquire().await.unwrap().is_held());
}

#[tokio::test]
async fn timeout_in_grace_names_it_instead_of_other_holders() {
    let server = Server::with("dlock.startup-grace-ms 600000");
    let timed_out = locks(&server).lock("door").timeout(ms(200)).acquire().await;
    let is_named = matches!(&timed_out, Err(Error::Timeout { last: Some(last), .. }) if matches!(**last, Error::Grace(_)));
    assert!(is_named, "{timed_out:?}");
}

#[tokio::test]
async fn timeout_of_zero_acquires_only_a_free_lock() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").timeout(Duration::ZERO);
    let guard = lock.acquire().await.unwrap();
    let taken = lock.acquire().await;
    assert!(
        matches!(taken, Err(Error::Timeout { last: None, .. })),
        "{taken:?}"
    );
    assert_eq!(client.lock("door").waiting, 0);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn evictable_server_is_reported() {
    let server = Server::with("maxmemory 100mb\nmaxmemory-policy allkeys-lru");
    let refused = locks(&server).lock("door").try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Evictable(_)), "{refused:?}");
}

#[tokio::test]
async fn run_holds_lock_and_releases_it() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let fence = locks.lock("door").run(async |guard| guard.fence()).await.unwrap();
    assert!(fence > 0);
    until_free(&mut client, "door").await;
    // Also in a task of its own.
    let lock = locks.lock("door");
    let task = tokio::spawn(async move { lock.run(async |guard| guard.is_held()).await });
    assert!(task.await.unwrap().unwrap());
}

#[tokio::test]
async fn lock_is_kept_for_its_time_after_the_release() {
    let (server, mut client) = start();
    let journal = Journal::default();
    let locks = Locks::with(server.url(), journal.settings()).unwrap();
    let lock = locks.lock("job").lease(ms(3000)).release_after(ms(60_000));
    let guard = lock.acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(client.lock("job").holders[0].lease_ms > 50_000);
    assert_eq!(journal.count("Ended"), 1);
    assert!(lock.try_acquire().await.unwrap().is_none());
    client.call("DEL job").unwrap();
    // Work that was not finished, or that has failed, does not count.
    drop(lock.acquire().await.unwrap());
    until_free(&mut client, "job").await;
    let failed = lock.try_run(async |_| Err::<(), _>("failed")).await;
    assert!(matches!(failed, Err(RunError::Failed("failed"))), "{failed:?}");
    until_free(&mut client, "job").await;
    // After that time it is an ordinary release.
    let guard = lock.clone().release_after(ms(1)).acquire().await;
    drop(guard);
    let guard = lock
        .clone()
        .lease(ms(60_000))
        .release_after(ms(400))
        .acquire()
        .await
        .unwrap();
    tokio::time::sleep(ms(700)).await;
    guard.release().await.unwrap();
    assert!(client.find_lock("job").is_none());
    // A lost lock is not kept.
    let guard = lock.acquire().await.unwrap();
    client.call("DEL job").unwrap();
    assert_lost(guard.release().await, Lost::NotHeld);
}

#[tokio::test]
async fn lock_that_is_kept_for_less_than_a_lease_is_free_in_time() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("job").release_after(ms(1500));
    let start = Instant::now();
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(client.lock("job").holders[0].lease_ms <= 1500);
    until_free(&mut client, "job").await;
    let took = start.elapsed();
    assert!(took > ms(1400) && took < ms(1500) + SLOW_MACHINE, "{took:?}");
    // Renewed beyond that time in its last third, it is released in the background.
    let start = Instant::now();
    let guard = lock.acquire().await.unwrap();
    until("a longer lease", || guard.remaining() > ms(10_000)).await;
    guard.release().await.unwrap();
    until_free(&mut client, "job").await;
    let took = start.elapsed();
    assert!(took > ms(1400) && took < ms(1500) + SLOW_MACHINE, "{took:?}");
}

#[tokio::test]
async fn lock_is_free_for_others_when_max_hold_is_over() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").max_hold(ms(1000));
    let start = Instant::now();
    let guard = lock.acquire().await.unwrap();
    client.call("DLOCK.ACQUIRE door alice 60000 BLOCK 0").unwrap();
    let took = start.elapsed();
    assert!(took > ms(900) && took < ms(1000) + SLOW_MACHINE, "{took:?}");
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await, Lost::MaxHold);
}

#[tokio::test]
async fn each_acquisition_has_one_end() {
    let (server, mut client) = start();
    let journal = Journal::default();
    let locks = Locks::with(server.url(), journal.settings()).unwrap();
    let lock = locks.lock("door");
    // Broken, then released; lost, then released; dropped; released.
    let guard = lock.acquire().await.unwrap();
    client.call("DEL door").unwrap();
    assert_lost(guard.release().await, Lost::NotHeld);
    let guard = lock.clone().max_hold(ms(100)).acquire().await.unwrap();
    guard.lost().await;
    assert_lost(guard.release().await, Lost::MaxHold);
    // The background gives back what is left, and releases what was dropped.
    until_free(&mut client, "door").await;
    drop(lock.acquire().await.unwrap());
    until_free(&mut client, "door").await;
    lock.acquire().await.unwrap().release().await.unwrap();
    until("all ends", || journal.count("Ended") == 4).await;
    // Taken: once at once, once after a wait.
    client.acquire("door alice 60000");
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.clone().timeout(ms(100)).acquire().await.is_err());
    locks.shutdown().await;
    for (event, count) in [("Acquired", 4), ("NotAcquired", 2), ("Waiting", 1), ("Ended", 4)] {
        assert_eq!(journal.count(event), count, "{event}");
    }
}

#[tokio::test]
async fn refused_connection_and_unknown_name_are_told_at_once() {
    for (address, cause) in [
        ("redis://127.0.0.1:1/", "refused"),
        ("redis://name.invalid/", "lookup"),
    ] {
        let locks = Locks::open(address).unwrap();
        let lock = locks.lock("door");
        let start = Instant::now();
        let errors = [
            locks.ping().await.unwrap_err(),
            lock.try_acquire().await.map(drop).unwrap_err(),
            lock.acquire().await.map(drop).unwrap_err(),
            lock.info().await.map(drop).unwrap_err(),
        ];
        assert!(start.elapsed() < SLOW_MACHINE, "{:?}", start.elapsed());
        for error in errors {
            assert!(error.to_string().contains(cause), "{error}");
        }
    }
}

#[tokio::test]
async fn reads_and_extensions_survive_a_lost_connection() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let guard = locks.acquire("door").await.unwrap();
    for _ in 0..10 {
        client.call("CLIENT KILL TYPE normal SKIPME yes").unwrap();
        assert!(locks.lock("door").info().await.unwrap().is_some());
        client.call("CLIENT KILL TYPE normal SKIPME yes").unwrap();
        guard.extend(ms(60_000)).await.unwrap();
        client.call("CLIENT KILL TYPE normal SKIPME yes").unwrap();
        locks.ping().await.unwrap();
    }
    guard.release().await.unwrap();
}

#[test]
fn locks_of_many_runtimes_never_fail() {
    let server = Server::start();
    let locks = locks(&server);
    let work = |thread: usize| {
        for n in 0..20 {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let lock = locks.lock(format!("door{}", (thread + n) % 3));
                lock.acquire().await.unwrap().release().await.unwrap();
            });
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || work(thread));
        }
    });
}

#[tokio::test]
async fn lock_in_demand_is_not_starved_by_waiters_for_others() {
    let server = Server::start();
    let locks = locks(&server);
    for n in 0..4 {
        server.client().acquire(&format!("stuck{n} alice 60000"));
    }
    let waiters: Vec<_> = (0..64)
        .map(|n| {
            let lock = locks.lock(format!("stuck{}", n % 4));
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    let mut client = server.client();
    until("all to wait", || {
        (0..4).map(|n| client.waiting(&format!("stuck{n}"))).sum::<i64>() == 64
    })
    .await;
    // Two other processes hand it to each other.
    let others: Vec<_> = (0..2)
        .map(|_| {
            let locks = crate::support::locks(&server);
            tokio::spawn(async move {
                loop {
                    let guard = locks.acquire("busy").await.unwrap();
                    tokio::time::sleep(ms(5)).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..20 {
        let start = Instant::now();
        let guard = soon("its turn", locks.acquire("busy")).await.unwrap();
        assert!(start.elapsed() < SLOW_MACHINE, "{:?}", start.elapsed());
        guard.release().await.unwrap();
    }
    others.iter().for_each(tokio::task::JoinHandle::abort);
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn thousands_wait_on_three_connections_in_order_of_arrival() {
    const KEYS: usize = 100;
    let (server, mut client) = start();
    let locks = locks(&server);
    let order = std::sync::Arc::new(std::sync::Mutex::new(vec![Vec::new(); KEYS]));
    let waiting = (0..10_000).map(|n| {
        let (locks, order) = (locks.clone(), std::sync::Arc::clone(&order));
        async move {
            let guard = locks.acquire(format!("door{}", n % KEYS)).await.unwrap();
            order.lock().unwrap()[n % KEYS].push(n);
            guard.release().await.unwrap();
        }
    });
    let mut tasks: tokio::task::JoinSet<()> = waiting.collect();
    until("many to wait", || client.stat("dlock_waiters") > 1000).await;
    // For requests, for answers, in the background, and that of the test.
    assert_eq!(client.server_number::<u64>("clients", "connected_clients"), 4);
    while let Some(done) = soon("all locks", tasks.join_next()).await {
        done.unwrap();
    }
    for of_key in order.lock().unwrap().iter() {
        assert!(of_key.is_sorted(), "{of_key:?}");
    }
}

#[tokio::test]
async fn invalid_option_is_rejected_before_anything_is_sent() {
    // Nothing listens there.
    let locks = Locks::open("redis://127.0.0.1:1/").unwrap();
    let lock = locks.lock("door");
    let invalid = [
        lock.clone().lease(Duration::ZERO),
        lock.clone().max_hold(Duration::ZERO),
        lock.clone().limit(0),
        lock.clone().limit(1 << 31),
        lock.clone().owner(""),
        lock.clone().shared().limit(3),
        locks.lock(""),
        lock.owner("x".repeat(513)),
    ];
    for lock in invalid {
        let error = lock.try_acquire().await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        let error = lock.acquire().await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    }
}

#[tokio::test]
async fn extend_beyond_max_hold_ends_with_it() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").max_hold(ms(20_000));
    let guard = lock.acquire().await.unwrap();
    let left = guard.extend(ms(600_000)).await.unwrap();
    assert!(left <= ms(20_000), "{left:?}");
    assert!(client.lock("door").holders[0].lease_ms <= 20_000);
}

#[tokio::test]
async fn deadlock_of_two_tasks_is_rejected_in_one_of_them() {
    let server = Server::start();
    let locks = locks(&server);
    let take = |own: &str, other: &str, owner: &str| {
        let (own, other) = (locks.lock(own).owner(owner), locks.lock(other).owner(owner));
        async move {
            let _own = own.acquire().await.unwrap();
            tokio::time::sleep(ms(100)).await;
            other.acquire().await.map(drop)
        }
    };
    let both = async { tokio::join!(take("a", "b", "alice"), take("b", "a", "bob")) };
    let outcomes = soon("an end", both).await;
    let is_expected = matches!(
        outcomes,
        (Err(Error::Deadlock(_)), Ok(())) | (Ok(()), Err(Error::Deadlock(_)))
    );
    assert!(is_expected, "{outcomes:?}");
}

#[tokio::test]
async fn ping_finds_server_and_says_what_is_wrong() {
    let (server, mut client) = start();
    locks(&server).ping().await.unwrap();
    client.call("ACL SETUSER reader on nopass ~* +@read").unwrap();
    let reader = Locks::open(format!("redis://reader:x@127.0.0.1:{}/", server.port())).unwrap();
    let refused = reader.ping().await.unwrap_err();
    assert!(refused.to_string().contains("NOPERM"), "{refused}");
    assert!(!refused.to_string().contains("reader:x"), "{refused}");
    let locks = locks(&server);
    locks.ping().await.unwrap();
    server.stop();
    let silent = soon("an outcome", locks.ping()).await.unwrap_err();
    assert!(silent.is_transient(), "{silent:?}");
    server.resume();
}

#[tokio::test]
async fn work_longer_than_release_after_keeps_lock_until_it_ends() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("job").lease(ms(3000)).release_after(ms(500));
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(ms(700)).await;
    assert!(guard.is_held(), "{guard:?}");
    client.assert_sole_holder("job", &guard.owner().to_string(), guard.fence(), 1);
    guard.release().await.unwrap();
    assert!(client.find_lock("job").is_none());
}

#[tokio::test]
async fn contended_acquisition_with_open_inbox_takes_one_command() {
    let (server, mut client) = start();
    let locks = locks(&server);
    client.acquire("door alice 60000");
    assert!(locks.lock("door").timeout(ms(300)).acquire().await.is_err());
    let before = client.calls("dlock.acquire");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("door").await }
    });
    until("a place in the queue", || client.waiting("door") == 1).await;
    client.release("door alice");
    let guard = soon("the lock", waiting).await.unwrap().unwrap();
    assert_eq!(client.calls("dlock.acquire") - before, 1);
    guard.release().await.unwrap();
}
