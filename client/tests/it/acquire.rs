//! Getting locks and giving them back, with every option.

use std::time::{Duration, Instant};

use crate::support::{Journal, calls, locks, ms, soon, until, until_free, url};
use dlock_testkit::{SLOW_MACHINE, Server, start, start_with};
use redis_dlock_client::{Error, Locks, LostReason, Owner, Settings};

#[tokio::test]
async fn lock_is_acquired_and_released() {
    let (server, mut client) = start();
    let guard = locks(&server).acquire("door").await.unwrap();
    let lock = client.lock("door");
    assert_eq!(lock.standing(), [(guard.owner().to_string(), guard.fence(), 1)]);
    assert_eq!((guard.key(), guard.holds()), (&b"door"[..], 1));
    assert!(guard.is_held() && guard.lost_reason().is_none());
    let lease = Duration::from_secs(30);
    let is_expected = guard.remaining() < lease && guard.remaining() > lease - SLOW_MACHINE;
    assert!(is_expected, "{:?}", guard.remaining());
    assert_eq!(guard.release().await.unwrap(), 0);
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
async fn held_lock_is_busy_at_once_or_times_out() {
    let server = Server::start();
    server.client().acquire("door alice 60000");
    let lock = locks(&server).lock("door");
    assert!(matches!(lock.try_acquire().await, Err(Error::Busy)));
    assert!(matches!(
        lock.clone().wait(Duration::ZERO).acquire().await,
        Err(Error::Busy)
    ));
    let start = Instant::now();
    let refused = lock.wait(ms(300)).acquire().await.unwrap_err();
    let took = start.elapsed();
    let is_expected = matches!(refused, Error::Timeout { last: None, .. });
    assert!(is_expected, "{refused:?}");
    assert!(took >= ms(300) && took < ms(300) + SLOW_MACHINE, "{took:?}");
    assert_eq!(server.client().waiting("door"), 0);
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
    let lock = locks(&server).lock("door").lease(ms(10_000)).auto_renew(false);
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
    assert!(matches!(locks.try_acquire("book").await, Err(Error::Busy)));
    drop(readers);
    let pool = locks.lock("pool").limit(2);
    let first = pool.acquire().await.unwrap();
    let _second = pool.acquire().await.unwrap();
    assert!(matches!(pool.try_acquire().await, Err(Error::Busy)));
    first.release().await.unwrap();
    let _third = pool.try_acquire().await.unwrap();
}

#[tokio::test]
async fn reentrant_guards_count_holds() {
    let server = Server::start();
    let owner = Owner::unique();
    let lock = locks(&server).lock("door").owner(&owner);
    let first = lock.acquire().await.unwrap();
    // From another client, too.
    let lock = Locks::open(url(&server)).unwrap().lock("door").owner(&owner);
    let second = lock.try_acquire().await.unwrap();
    assert_eq!((first.holds(), second.holds()), (1, 2));
    assert_eq!(first.fence(), second.fence());
    assert_eq!(first.release().await.unwrap(), 1);
    assert!(second.is_held());
    assert_eq!(second.release().await.unwrap(), 0);
}

#[tokio::test]
async fn info_shows_holders_and_waiters() {
    let server = Server::start();
    let lock = locks(&server).lock("door").owner("alice").lease(ms(60_000));
    assert_eq!(lock.current_owner().await.unwrap(), None);
    assert_eq!(lock.info().await.unwrap(), None);
    let guard = lock.acquire().await.unwrap();
    let _waiter = server.waiter("door bob 60000 SHARED BLOCK 50000");
    assert_eq!(lock.current_owner().await.unwrap(), Some(Owner::from("alice")));
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

#[tokio::test]
async fn extend_never_shortens_lease() {
    let server = Server::start();
    let lock = locks(&server).lock("door").lease(ms(10_000)).auto_renew(false);
    let guard = lock.acquire().await.unwrap();
    let left = guard.extend(ms(60_000)).await.unwrap();
    assert!(left > ms(59_000) - SLOW_MACHINE && left < ms(60_000), "{left:?}");
    assert!(guard.extend(ms(1)).await.unwrap() > ms(50_000));
}

#[tokio::test]
async fn missing_module_is_reported_with_remedy() {
    let server = Server::without_module("");
    let lock = locks(&server).lock("door");
    for outcome in [lock.try_acquire().await, lock.acquire().await] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::ModuleMissing), "{error:?}");
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
    let is_expected = matches!(&wrong, Error::Redis(error) if error.code() == Some("WRONGTYPE"));
    assert!(is_expected, "{wrong:?}");
    let lock = locks.lock("door").lease(Duration::ZERO);
    let impossible = lock.acquire().await.unwrap_err();
    assert!(matches!(&impossible, Error::Invalid(_)), "{impossible:?}");
    client.ok("CONFIG SET dlock.max-waiters-per-lock 1");
    client.acquire("door alice 60000");
    let _waiter = server.waiter("door bob 60000 BLOCK 0");
    let full = locks.lock("door").wait(ms(2_000)).acquire().await.unwrap_err();
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
async fn evictable_server_is_reported() {
    let server = Server::with("maxmemory 100mb\nmaxmemory-policy allkeys-lru");
    let refused = locks(&server).try_acquire("door").await.unwrap_err();
    assert!(matches!(refused, Error::Evictable(_)), "{refused:?}");
}

#[tokio::test]
async fn check_finds_missing_module_permissions_and_settings() {
    let (server, mut client) = start();
    locks(&server).check("health").await.unwrap();
    assert!(client.find_lock("health").is_none());
    client.acquire("health alice 60000");
    locks(&server).check("health").await.unwrap();
    client.call("ACL SETUSER reader on nopass ~* +@read").unwrap();
    let reader = Locks::open(format!("redis://reader:x@127.0.0.1:{}/", server.port())).unwrap();
    let refused = reader.check("health").await.unwrap_err();
    assert!(refused.to_string().contains("NOPERM"), "{refused}");
    let server = Server::with("maxmemory 100mb\nmaxmemory-policy allkeys-lru");
    let refused = locks(&server).check("health").await.unwrap_err();
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
async fn released_guard_of_lock_with_at_least_keeps_it_for_that_time() {
    let (server, mut client) = start();
    let journal = Journal::default();
    let locks = Locks::with(url(&server), journal.settings()).unwrap();
    let lock = locks.lock("job").lease(ms(3000)).at_least(ms(60_000));
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), 1, "kept");
    assert!(client.lock("job").holders[0].lease_ms > 50_000);
    assert_eq!((journal.count("Kept"), journal.count("Released")), (1, 0));
    assert!(matches!(lock.try_acquire().await, Err(Error::Busy)));
    client.call("DEL job").unwrap();
    // Work that was not finished does not count.
    drop(lock.acquire().await.unwrap());
    until_free(&mut client, "job").await;
    assert_eq!(lock.acquire().await.unwrap().release_at_once().await.unwrap(), 0);
    // After that time it is an ordinary release.
    let guard = lock.clone().at_least(ms(1)).acquire().await.unwrap();
    tokio::time::sleep(ms(10)).await;
    assert_eq!(guard.release().await.unwrap(), 0);
    // A lost lock is not kept.
    let guard = lock.acquire().await.unwrap();
    client.call("DEL job").unwrap();
    assert!(guard.release().await.unwrap_err().is_lost());
}

#[tokio::test]
async fn explained_refusal_names_the_holder() {
    let server = Server::start();
    server.client().acquire("door alice 60000");
    let lock = locks(&server).lock("door").explain();
    let refused = lock.try_acquire().await.unwrap_err();
    let is_expected = refused.to_string().starts_with("alice has held the lock for ");
    assert!(is_expected, "{refused}");
    let Error::HeldBy(info) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(info.holders[0].owner.as_bytes(), b"alice");
}

#[tokio::test]
async fn adopted_hold_is_renewed_and_released_elsewhere() {
    let (server, mut client) = start();
    let (one, other) = (locks(&server), locks(&server));
    let guard = one.lock("door").lease(ms(3000)).acquire().await.unwrap();
    let (fence, parts) = (guard.fence(), guard.into_parts());
    drop(one);
    let guard = other.adopt(parts.clone()).await.unwrap();
    assert_eq!((guard.fence(), guard.key()), (fence, &b"door"[..]));
    // Longer than the lease: it is renewed.
    tokio::time::sleep(ms(3500)).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), 0);
    assert!(client.find_lock("door").is_none());
}

#[tokio::test]
async fn adopting_a_lost_hold_fails_with_the_reason() {
    let server = Server::start();
    let mut client = server.client();
    let locks = locks(&server);
    let parts = locks
        .lock("door")
        .owner("alice")
        .acquire()
        .await
        .unwrap()
        .into_parts();
    let adopt = async || match locks.adopt(parts.clone()).await {
        Err(Error::Lost(reason)) => reason,
        other => panic!("{other:?}"),
    };
    client.call("DEL door").unwrap();
    assert_eq!(adopt().await, LostReason::NotHeld);
    client.acquire("door bob 60000");
    assert_eq!(adopt().await, LostReason::NotOwner);
    client.release("door bob");
    client.acquire("door alice 60000");
    assert_eq!(adopt().await, LostReason::Stale);
    // What the owner acquired since is left alone.
    assert_eq!(client.lock("door").holders[0].holds, 1);
}

#[tokio::test]
async fn adopted_hold_notices_its_loss_and_is_released_by_panic() {
    let server = Server::start();
    let mut client = server.client();
    let locks = locks(&server);
    let adopted = async |key: &str| {
        let parts = locks
            .lock(key)
            .lease(ms(3000))
            .acquire()
            .await
            .unwrap()
            .into_parts();
        locks.adopt(parts).await.unwrap()
    };
    let guard = adopted("door").await;
    client.call("DEL door").unwrap();
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::NotHeld);
    let guard = adopted("book").await;
    let working = tokio::spawn(async move {
        let _guard = guard;
        panic!("the work fails");
    });
    assert!(working.await.unwrap_err().is_panic());
    until_free(&mut client, "book").await;
}

#[tokio::test]
async fn contended_acquisition_after_a_refusal_takes_two_commands() {
    let (server, mut client) = start();
    let locks = locks(&server);
    client.acquire("door alice 60000");
    assert!(locks.lock("door").wait(ms(300)).acquire().await.is_err());
    let before = calls(&mut client, "dlock.acquire");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("door").await }
    });
    until("a place in the queue", || client.waiting("door") == 1).await;
    client.release("door alice");
    let guard = soon("the lock", waiting).await.unwrap().unwrap();
    assert_eq!(
        calls(&mut client, "dlock.acquire") - before,
        1,
        "no refusal first"
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn hook_receives_every_event() {
    let server = Server::start();
    let journal = Journal::default();
    let locks = Locks::with(url(&server), journal.settings()).unwrap();
    let guard = locks.lock("door").lease(ms(3000)).acquire().await.unwrap();
    until("a renewal", || journal.count("Renewed") > 0).await;
    assert!(locks.try_acquire("door").await.is_err());
    guard.release().await.unwrap();
    for (event, count) in [
        ("Acquired", 1),
        ("AcquireFailed", 1),
        ("Released", 1),
        ("Lost", 0),
    ] {
        assert_eq!(journal.count(event), count, "{event}");
    }
}

#[tokio::test]
async fn event_names_server() {
    let server = Server::start();
    let (sender, receiver) = std::sync::mpsc::channel();
    let settings = Settings::default().on_event(move |event| {
        // Fails only after the end of the test.
        let _ = sender.send(event.server.to_string());
    });
    let locks = Locks::with(url(&server), settings).unwrap();
    let _guard = locks.acquire("door").await.unwrap();
    assert_eq!(receiver.recv().unwrap(), format!("127.0.0.1:{}", server.port()));
}

#[tokio::test]
async fn invalid_option_is_rejected_before_anything_is_sent() {
    // Nothing listens there.
    let locks = Locks::open("redis://127.0.0.1:1/").unwrap();
    let lock = locks.lock("door");
    let invalid = [
        lock.clone().lease(Duration::from_micros(999)),
        lock.clone().limit(0),
        lock.clone().limit(1 << 31),
        lock.clone().owner(""),
        lock.owner("x".repeat(513)),
    ];
    for lock in invalid {
        let error = lock.try_acquire().await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        let error = lock.acquire().await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    }
}
