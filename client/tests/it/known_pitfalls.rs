//! What other lock clients got wrong, as far as no other file of these tests is about it.
//!
//! Elsewhere: replies that count twice (`faults`), renewals that outlive the release, stop silently, or give
//! the lock up at their first failure, and holders that nobody tells (`lost`), cancelled futures and dropped
//! guards that leak (`dropped`), leases that wrap around (`lost`, and `hold` in the crate).

use std::time::{Duration, Instant};

use crate::support::{locks, ms, until_free};
use dlock_testkit::{SLOW_MACHINE, Server, start};
use redis_dlock_client::{Error, Locks, Owner};

fn connections(server: &Server) -> u64 {
    let mut client = server.client();
    client.server_number("stats", "total_connections_received")
}

#[tokio::test]
async fn operations_share_connections() {
    let server = Server::start();
    let locks = locks(&server);
    locks.acquire("warm-up").await.unwrap().release().await.unwrap();
    let before = connections(&server);
    for n in 0..50 {
        let guard = locks.lock(format!("door{n}")).acquire().await.unwrap();
        guard.extend(ms(60_000)).await.unwrap();
        if n % 2 == 0 {
            drop(guard)
        } else {
            drop(guard.release().await)
        }
    }
    // That of the background, and the one that asks.
    assert!(connections(&server) - before <= 2);
}

#[tokio::test]
async fn extend_by_zero_keeps_lock() {
    let server = Server::start();
    let guard = locks(&server).acquire("door").await.unwrap();
    let refused = guard.extend(Duration::ZERO).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn shortest_lease_is_never_reported_as_held() {
    let (server, mut client) = start();
    let locks = locks(&server);
    for lease_ms in [1, 2, 3, 10, 100, 510] {
        let lock = locks.lock("door").max_hold(ms(lease_ms));
        let asked_at = Instant::now();
        match lock.try_acquire().await {
            Ok(guard) => {
                let guard = guard.expect("it is free");
                assert!(guard.remaining() < ms(lease_ms), "{guard:?}");
            }
            // The safety margin of the deadline is 2 ms and a thousandth of the lease.
            Err(error) => assert!(
                matches!(error, Error::Lost(_)) && asked_at.elapsed() + ms(3) >= ms(lease_ms),
                "{lease_ms}: {error:?}"
            ),
        }
        until_free(&mut client, "door").await;
    }
}

#[tokio::test]
async fn guard_is_released_from_any_thread_once() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let guard = locks.acquire("door").await.unwrap();
    let other = locks.lock("door").try_acquire().await.unwrap();
    assert!(other.is_none(), "the same task is another owner");
    let elsewhere = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(guard.release())
    });
    tokio::task::spawn_blocking(|| elsewhere.join().unwrap().unwrap())
        .await
        .unwrap();
    assert!(client.find_lock("door").is_none());
}

#[tokio::test]
async fn reentry_keeps_fence_and_lease() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door");
    let lock = lock.owner(Owner::unique());
    let outer = lock.clone().lease(ms(20_000)).acquire().await.unwrap();
    let inner = lock.clone().lease(ms(30_000)).acquire().await.unwrap();
    assert_eq!(inner.fence(), outer.fence());
    assert!(client.lock("door").holders[0].lease_ms <= 30_000);
    let shorter = lock.lease(ms(1_000)).acquire().await.unwrap();
    assert!(client.lock("door").holders[0].lease_ms > 25_000, "not shortened");
    shorter.release().await.unwrap();
    let is_expected = client.lock("door").holders[0].lease_ms > 25_000;
    assert!(is_expected, "not by the release either");
    outer.release().await.unwrap();
    assert_eq!(client.lock("door").holders[0].holds, 1);
    inner.release().await.unwrap();
    assert!(client.find_lock("door").is_none());
}

#[tokio::test]
async fn fence_belongs_to_its_guard() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").max_hold(ms(300));
    let guard = lock.acquire().await.unwrap();
    let fence = guard.fence();
    guard.lost().await;
    until_free(&mut client, "door").await;
    assert!(client.acquire("door bob 60000").fence > fence);
    assert_eq!(guard.fence(), fence);
}

#[tokio::test]
async fn rejected_request_sends_no_release() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let locks = locks(&server);
    for _ in 0..20 {
        assert!(locks.lock("door").try_acquire().await.unwrap().is_none());
    }
    let waited = locks.lock("door").timeout(ms(100)).acquire().await;
    assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
    locks.shutdown().await;
    // One question each; one that found no inbox, and then waited.
    assert_eq!(client.calls("dlock.acquire"), 1 + 20 + 2);
    // That of the one that was queued.
    assert_eq!(client.calls("dlock.release"), 1);
}

#[tokio::test]
async fn waiting_does_not_poll() {
    let (server, mut client) = start();
    client.acquire("door alice 800");
    let guard = locks(&server).acquire("door").await.unwrap();
    let count = client.calls("dlock.acquire");
    assert_eq!(count, 3, "one of alice, one that found no inbox, one that waited");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn error_names_its_cause() {
    let locks = Locks::open("redis://127.0.0.1:1/").unwrap();
    let start = std::time::Instant::now();
    let error = locks.lock("door").acquire().await.unwrap_err();
    assert!(start.elapsed() < SLOW_MACHINE, "{:?}", start.elapsed());
    let is_expected = error.to_string().contains("127.0.0.1:1: Connection refused");
    assert!(is_expected, "{error}");
}

#[tokio::test]
async fn lock_needs_no_scripts() {
    let server = Server::with("user default on nopass ~* &* +@all -@scripting");
    let guard = locks(&server).acquire("door").await.unwrap();
    guard.release().await.unwrap();
}
