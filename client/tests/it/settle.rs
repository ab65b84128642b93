//! Waiting for background work at the end of a process.

use std::time::{Duration, Instant};

use dlock_testkit::{Proxy, Server, start};
use redis_dlock_client::{Locks, Settings};
use tokio::task::JoinSet;

use crate::support::{locks, ms, soon, url};

const GUARDS: usize = 1000;

#[tokio::test]
async fn settle_waits_for_release_of_all_dropped_guards() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let mut tasks = JoinSet::new();
    for n in 0..GUARDS {
        let locks = locks.clone();
        tasks.spawn(async move {
            let _guard = locks.acquire(format!("lock{n}")).await.unwrap();
            std::future::pending::<()>().await;
        });
    }
    crate::support::until("all locks to be held", || client.ask::<usize>("DBSIZE") == GUARDS).await;
    tasks.shutdown().await;
    soon("the releases", locks.settle()).await;
    assert_eq!(client.ask::<usize>("DBSIZE"), 0);
}

#[tokio::test]
async fn settle_waits_for_cancellation_of_dropped_requests() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let locks = locks(&server);
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let locks = locks.clone();
        tasks.spawn(async move { locks.acquire("door").await.map(drop) });
    }
    crate::support::until("a queue", || client.waiting("door") == 10).await;
    tasks.shutdown().await;
    soon("the cancellations", locks.settle()).await;
    assert_eq!(client.waiting("door"), 0);
}

#[tokio::test]
async fn settle_waits_again_for_work_of_an_earlier_call() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::with(proxy.url(), Settings::default().response_timeout(ms(200))).unwrap();
    drop(locks.acquire("warm").await.unwrap());
    soon("the release", locks.settle()).await;
    let guard = locks.lock("door").lease(ms(60_000)).acquire().await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    drop(guard);
    for _ in 0..2 {
        let settled = tokio::time::timeout(ms(300), locks.settle()).await;
        assert!(settled.is_err(), "settled while the server was unreachable");
    }
    proxy.refuse(false);
    soon("the release", locks.settle()).await;
    assert!(server.client().find_lock("door").is_none());
}

#[test]
fn blocking_settle_returns_within_its_limit() {
    let server = Server::start();
    let locks = Locks::open(url(&server)).unwrap();
    drop(locks.blocking_acquire("door").unwrap());
    assert!(locks.blocking_settle(Duration::from_secs(20)));
    assert!(server.client().find_lock("door").is_none());
    let guard = locks.blocking_acquire("door").unwrap();
    server.stop();
    drop(guard);
    let begun = Instant::now();
    assert!(!locks.blocking_settle(ms(100)));
    assert!(begun.elapsed() < Duration::from_secs(10));
    server.resume();
    assert!(locks.blocking_settle(Duration::from_secs(20)));
}
