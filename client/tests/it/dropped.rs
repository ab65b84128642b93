//! Futures and guards that are dropped: whatever the moment, nothing is left behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Journal, locks, ms, soon, until, until_free};
use dlock_testkit::{Proxy, SLOW_MACHINE, Server, Way, start, wait_for};
use redis_dlock_client::{Error, Guard, Locks, Owner};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A guard of `door`, from a runtime that is still there.
fn guard(server: &Server, runtime: &Runtime) -> Guard {
    runtime.block_on(locks(server).acquire("door")).unwrap()
}

#[track_caller]
fn wait_until_free(server: &Server, key: &str) {
    let mut client = server.client();
    wait_for("the lock to be free", || client.find_lock(key).is_none());
}

#[test]
fn dropped_guard_is_released_with_and_without_runtime() {
    let server = Server::start();
    let runtime = runtime();
    runtime.block_on(async { drop(locks(&server).acquire("door").await.unwrap()) });
    wait_until_free(&server, "door");
    drop(guard(&server, &runtime));
    wait_until_free(&server, "door");
    let elsewhere = guard(&server, &runtime);
    thread::spawn(|| drop(elsewhere)).join().unwrap();
    wait_until_free(&server, "door");
}

#[test]
fn guard_outlives_its_runtime() {
    let (server, mut client) = start();
    let runtime = runtime();
    let guard = runtime
        .block_on(locks(&server).lock("door").lease(ms(3000)).acquire())
        .unwrap();
    drop(runtime);
    let start = Instant::now();
    while start.elapsed() < ms(3500) {
        assert!(guard.is_held());
        thread::sleep(ms(10));
    }
    assert_eq!(client.lock("door").holders[0].fence, guard.fence());
    drop(guard);
    wait_until_free(&server, "door");
}

#[test]
fn guard_dropped_by_runtime_shutdown_is_released() {
    let (server, mut client) = start();
    let runtime = runtime();
    let locks = locks(&server);
    runtime.spawn(async move {
        let _guard = locks.acquire("door").await.unwrap();
        std::future::pending::<()>().await;
    });
    runtime.block_on(until("the lock", || client.find_lock("door").is_some()));
    runtime.shutdown_background();
    wait_until_free(&server, "door");
}

#[test]
fn guard_is_released_by_panic() {
    let server = Server::start();
    let runtime = runtime();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _guard = guard(&server, &runtime);
        panic!("this is part of the test");
    }));
    assert!(caught.is_err());
    wait_until_free(&server, "door");
    // Inside of a task, too.
    let locks = locks(&server);
    let outcome = runtime.block_on(runtime.spawn(async move {
        let _guard = locks.acquire("door").await.unwrap();
        panic!("this is part of the test");
    }));
    assert!(outcome.unwrap_err().is_panic());
    wait_until_free(&server, "door");
}

#[test]
fn drop_does_not_block_on_unresponsive_server() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let runtime = runtime();
    let locks = Locks::open(proxy.url()).unwrap();
    let guards: Vec<Guard> = (0..50)
        .map(|n| runtime.block_on(locks.acquire(format!("door{n}"))).unwrap())
        .collect();
    proxy.freeze(Way::ToServer);
    let start = Instant::now();
    drop(guards);
    assert!(start.elapsed() < SLOW_MACHINE / 3, "{:?}", start.elapsed());
    proxy.thaw();
    for n in 0..50 {
        wait_until_free(&server, &format!("door{n}"));
    }
}

#[test]
fn locks_are_usable_from_successive_runtimes() {
    let server = Server::start();
    let locks = locks(&server);
    for n in 0..3 {
        runtime().block_on(async {
            let guard = locks.acquire("door").await.unwrap();
            guard.release().await.unwrap();
            let waiter = server.client().try_acquire("door alice 300");
            let waiter = waiter.map(|_| locks.acquire("door"));
            soon("the lock", waiter.unwrap())
                .await
                .unwrap()
                .release()
                .await
                .unwrap_or_else(|error| panic!("{n}: {error}"));
        });
    }
}

#[tokio::test]
async fn dropped_release_continues_in_background() {
    let (server, mut client) = start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    let guard = locks.acquire("door").await.unwrap();
    proxy.freeze(Way::ToServer);
    assert!(tokio::time::timeout(ms(50), guard.release()).await.is_err());
    proxy.cut();
    proxy.thaw();
    until_free(&mut client, "door").await;
}

#[tokio::test]
async fn dropped_waiter_leaves_queue_and_keeps_connections() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let journal = Journal::default();
    let locks = Locks::with(server.url(), journal.settings()).unwrap();
    for round in 1..=5 {
        let waiting = locks.acquire("door");
        let left = tokio::select! {
            outcome = waiting => panic!("{outcome:?}"),
            () = until("a place in the queue", || client.waiting("door") == 1) => Instant::now(),
        };
        until("the queue to be empty", || client.waiting("door") == 0).await;
        assert!(left.elapsed() < SLOW_MACHINE);
        until("the event", || journal.count("NotAcquired") == round).await;
    }
    // One for requests, one for answers, that of the background, and the test's own.
    let connections: i64 = client.server_number("clients", "connected_clients");
    assert!(connections <= 4, "{connections}");
    client.release("door alice");
    assert!(client.try_acquire("door bob 1000").is_some());
}

/// Polls a future continuously for a while, then drops it.
async fn drop_after<T>(patience: Duration, future: impl Future<Output = T>) {
    tokio::pin!(future);
    let start = Instant::now();
    while start.elapsed() < patience {
        tokio::select! {
            biased;
            _ = &mut future => return,
            () = tokio::task::yield_now() => {}
        }
    }
}

#[tokio::test]
async fn acquire_dropped_at_any_time_leaves_no_lock() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let lock = locks.lock("door").lease(ms(60_000));
    // From before the request is sent to after it was answered, waited for or not.
    for holder in [false, true] {
        for patience_us in (0..600).step_by(15) {
            if holder {
                // What was dropped before may only now arrive, and be taken back.
                until("the lock", || client.try_acquire("door alice 60000").is_some()).await;
            }
            let patience = Duration::from_micros(patience_us);
            drop_after(patience, lock.acquire()).await;
            if holder {
                client.release("door alice");
            }
            until_free(&mut client, "door").await;
        }
    }
}

#[tokio::test]
async fn waiter_dropped_during_grant_leaves_no_lock() {
    let (server, mut client) = start();
    let locks = locks(&server);
    for _ in 0..30 {
        client.acquire("door alice 60000");
        let waiting = tokio::spawn({
            let lock = locks.lock("door").lease(ms(60_000));
            async move { lock.acquire().await }
        });
        until("a place in the queue", || client.waiting("door") == 1).await;
        client.send("DLOCK.RELEASE door alice");
        waiting.abort();
        let _ = waiting.await;
        let _: i64 = client.connection().recv_response().map(|_| 0).unwrap();
        until_free(&mut client, "door").await;
    }
}

#[tokio::test]
async fn dropped_request_keeps_other_holds_of_owner() {
    let (server, mut client) = start();
    let owner = Owner::unique();
    let locks = locks(&server);
    client.acquire("door alice 60000");
    let mine = locks.lock("window").owner(&owner).acquire().await.unwrap();
    let waiting = locks.lock("door").owner(&owner);
    tokio::select! {
        outcome = waiting.acquire() => panic!("{outcome:?}"),
        () = until("a place in the queue", || client.waiting("door") == 1) => {}
    }
    until("the queue to be empty", || client.waiting("door") == 0).await;
    assert_eq!(client.owner("door").as_deref(), Some("alice"));
    assert!(mine.is_held());
    mine.release().await.unwrap();
}

#[test]
fn connections_close_after_last_guard() {
    let server = Server::start();
    let runtime = runtime();
    drop(guard(&server, &runtime));
    wait_until_free(&server, "door");
    drop(runtime);
    let mut client = server.client();
    wait_for("only the connection of the test", || {
        client.server_info("clients", "connected_clients") == "1"
    });
}

#[tokio::test]
async fn timeout_is_exact_and_cancels_on_unresponsive_server() {
    let (server, mut client) = start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    locks.acquire("warm-up").await.unwrap().release().await.unwrap();
    proxy.freeze(Way::ToClient);
    let start = Instant::now();
    let refused = locks.lock("door").timeout(ms(300)).acquire().await.unwrap_err();
    let took = start.elapsed();
    // Others are not blamed for it.
    let is_expected = matches!(refused, Error::Timeout { last: Some(_), .. });
    assert!(is_expected, "{refused:?}");
    assert!(took >= ms(300) && took < ms(300) + SLOW_MACHINE / 3, "{took:?}");
    proxy.thaw();
    until_free(&mut client, "door").await;
}

#[tokio::test]
async fn token_is_cancelled_when_guard_is_released_or_dropped() {
    let server = Server::start();
    let locks = locks(&server);
    let guard = locks.acquire("door").await.unwrap();
    let token = guard.token();
    assert!(!token.is_cancelled());
    guard.release().await.unwrap();
    assert!(token.is_cancelled());
    let guard = locks.acquire("door").await.unwrap();
    let token = guard.token();
    drop(guard);
    soon("the token", token.cancelled()).await;
}
