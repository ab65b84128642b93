//! Getting locks and giving them back, with every option.

use std::time::{Duration, Instant};

use crate::support::{Journal, locks, ms, soon, until, until_free, url};
use dlock_testkit::{SLOW_MACHINE, Server};
use redis_dlock_client::{Error, Locks, Owner, Settings};

#[tokio::test]
async fn a_lock_is_acquired_and_given_back() {
    let server = Server::start();
    let mut client = server.client();
    let guard = locks(&server).acquire("door").await.unwrap();
    let lock = client.lock("door");
    assert_eq!(lock.standing(), [(guard.owner().to_string(), guard.fence(), 1)]);
    assert_eq!((guard.key(), guard.holds()), (&b"door"[..], 1));
    assert!(guard.is_held() && guard.lost_reason().is_none());
    let lease = Duration::from_secs(30);
    assert!(
        guard.remaining() < lease && guard.remaining() > lease - SLOW_MACHINE,
        "{:?}",
        guard.remaining()
    );
    assert_eq!(guard.release().await.unwrap(), 0);
    assert!(client.find_lock("door").is_none());
}

#[tokio::test]
async fn each_acquisition_has_an_owner_and_a_larger_fence_of_its_own() {
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
async fn a_lock_that_others_hold_is_refused_at_once_or_after_the_wait() {
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
    assert!(
        matches!(refused, Error::Timeout { last: None, .. }),
        "{refused:?}"
    );
    assert!(took >= ms(300) && took < ms(300) + SLOW_MACHINE, "{took:?}");
    assert_eq!(server.client().waiting("door"), 0);
}

#[tokio::test]
async fn waiters_are_served_in_order_of_arrival() {
    let server = Server::start();
    let mut client = server.client();
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
async fn the_time_spent_waiting_does_not_count_against_the_lease() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("door alice 700");
    let lock = locks(&server).lock("door").lease(ms(10_000)).auto_renew(false);
    let guard = lock.acquire().await.unwrap();
    let remaining = guard.remaining();
    let told = client.lock("door").holders[0].lease_ms;
    assert!(remaining <= ms(told) + ms(20), "{remaining:?} of {told}");
    assert!(remaining > ms(10_000) - SLOW_MACHINE, "{remaining:?}");
}

#[tokio::test]
async fn readers_share_and_a_semaphore_admits_its_number() {
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
async fn two_guards_of_one_owner_count_on_the_server() {
    let server = Server::start();
    let owner = Owner::unique();
    let lock = locks(&server).lock("door").owner(&owner);
    let first = lock.acquire().await.unwrap();
    // From another client, too.
    let second = Locks::open(url(&server))
        .unwrap()
        .lock("door")
        .owner(&owner)
        .try_acquire()
        .await
        .unwrap();
    assert_eq!((first.holds(), second.holds()), (1, 2));
    assert_eq!(first.fence(), second.fence());
    assert_eq!(first.release().await.unwrap(), 1);
    assert!(second.is_held());
    assert_eq!(second.release().await.unwrap(), 0);
}

#[tokio::test]
async fn anybody_can_ask_who_holds_a_lock_and_who_waits() {
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
    assert_eq!(
        (&holder.owner, holder.fence, holder.holds),
        (guard.owner(), guard.fence(), 1)
    );
    assert!(holder.lease <= ms(60_000) && holder.lease > ms(60_000) - SLOW_MACHINE);
    let waiter = &info.waiters[0];
    assert_eq!((waiter.owner.to_string().as_str(), waiter.limit), ("bob", None));
    assert_eq!(waiter.timeout, Some(ms(50_000)));
}

#[tokio::test]
async fn an_extension_prolongs_the_lease_and_never_shortens_it() {
    let server = Server::start();
    let guard = locks(&server)
        .lock("door")
        .lease(ms(10_000))
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    let left = guard.extend(ms(60_000)).await.unwrap();
    assert!(left > ms(59_000) - SLOW_MACHINE && left < ms(60_000), "{left:?}");
    assert!(guard.extend(ms(1)).await.unwrap() > ms(50_000));
}

#[tokio::test]
async fn a_server_without_the_module_is_reported_with_what_to_do() {
    let server = Server::without_module("");
    let lock = locks(&server).lock("door");
    for outcome in [lock.try_acquire().await, lock.acquire().await] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::ModuleMissing), "{error:?}");
        assert!(
            error.to_string().contains("loadmodule /path/to/libdlock.so"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_refusal_that_no_waiting_helps_comes_at_once() {
    let server = Server::start();
    let mut client = server.client();
    let locks = locks(&server);
    client.ok("SET text value");
    let wrong = locks.acquire("text").await.unwrap_err();
    assert!(
        matches!(&wrong, Error::Redis(error) if error.code() == Some("WRONGTYPE")),
        "{wrong:?}"
    );
    let impossible = locks
        .lock("door")
        .lease(Duration::ZERO)
        .acquire()
        .await
        .unwrap_err();
    assert!(
        matches!(&impossible, Error::Redis(error) if error.code() == Some("ERR")),
        "{impossible:?}"
    );
    client.ok("CONFIG SET dlock.max-waiters-per-lock 1");
    client.acquire("door alice 60000");
    let _waiter = server.waiter("door bob 60000 BLOCK 0");
    let full = locks.acquire("door").await.unwrap_err();
    assert!(matches!(full, Error::QueueFull(_)), "{full:?}");
}

#[tokio::test]
async fn a_deadlock_is_refused_and_its_circle_told() {
    let server = Server::start();
    let mut client = server.client();
    client.acquire("a alice 60000");
    let _waiter = {
        client.acquire("b bob 60000");
        server.waiter("a bob 60000 BLOCK 0")
    };
    let refused = locks(&server)
        .lock("b")
        .owner("alice")
        .acquire()
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, Error::Deadlock(circle) if circle.contains("bob holds b")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_grace_refuses_those_who_do_not_wait_and_is_waited_for_by_those_who_do() {
    let server = Server::with("dlock.startup-grace-ms 1500");
    let lock = locks(&server).lock("door");
    let refused = lock.try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Grace(_)), "{refused:?}");
    assert!(lock.acquire().await.unwrap().is_held());
}

#[tokio::test]
async fn a_server_that_may_evict_locks_is_told_apart() {
    let server = Server::with("maxmemory 100mb\nmaxmemory-policy allkeys-lru");
    let refused = locks(&server).try_acquire("door").await.unwrap_err();
    assert!(matches!(refused, Error::Evictable(_)), "{refused:?}");
}

#[tokio::test]
async fn work_runs_under_the_lock_which_is_free_afterwards() {
    let server = Server::start();
    let mut client = server.client();
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
async fn every_step_is_reported_to_the_hook() {
    let server = Server::start();
    let journal = Journal::default();
    let locks = Locks::with(url(&server), journal.settings()).unwrap();
    let guard = locks.lock("door").lease(ms(300)).acquire().await.unwrap();
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
async fn an_event_names_the_server() {
    let server = Server::start();
    let (told, heard) = std::sync::mpsc::channel();
    let settings = Settings::default().on_event(move |event| {
        // The test has ended when nobody listens.
        let _ = told.send(event.server.to_string());
    });
    let locks = Locks::with(url(&server), settings).unwrap();
    let _guard = locks.acquire("door").await.unwrap();
    assert_eq!(heard.recv().unwrap(), format!("127.0.0.1:{}", server.port()));
}
