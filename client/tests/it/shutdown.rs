//! Waiting for background work at the end of a process.

use dlock_testkit::{Proxy, Server, Way, start};
use redis_dlock_client::{Error, Locks, Settings};
use tokio::task::JoinSet;

use crate::support::{locks, ms, soon};

const GUARDS: usize = 1000;

#[tokio::test]
async fn shutdown_waits_for_release_of_all_dropped_guards() {
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
    soon("the releases", locks.shutdown()).await;
    assert_eq!(client.ask::<usize>("DBSIZE"), 0);
}

#[tokio::test]
async fn shutdown_waits_for_cancellation_of_dropped_requests() {
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
    soon("the cancellations", locks.shutdown()).await;
    assert_eq!(client.waiting("door"), 0);
}

#[tokio::test]
async fn shutdown_waits_for_cancellation_of_request_that_timed_out() {
    let (server, mut client) = start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    locks.acquire("warm").await.unwrap().release().await.unwrap();
    proxy.delay(Way::ToServer, ms(500));
    let refused = locks.lock("door").timeout(ms(100)).acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Timeout { .. }), "{refused:?}");
    soon("the cancellation", locks.shutdown()).await;
    assert_eq!(client.stat("dlock_acquired"), 2);
    assert!(client.find_lock("door").is_none());
}

#[tokio::test]
async fn shutdown_waits_again_for_work_of_an_earlier_call() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::with(proxy.url(), Settings::default().response_timeout(ms(200))).unwrap();
    drop(locks.acquire("warm").await.unwrap());
    soon("the release", locks.shutdown()).await;
    let guard = locks.lock("door").lease(ms(60_000)).acquire().await.unwrap();
    proxy.refuse(true);
    proxy.cut();
    drop(guard);
    for _ in 0..2 {
        let settled = tokio::time::timeout(ms(300), locks.shutdown()).await;
        assert!(settled.is_err(), "settled while the server was unreachable");
    }
    proxy.refuse(false);
    soon("the release", locks.shutdown()).await;
    assert!(server.client().find_lock("door").is_none());
}

#[tokio::test]
async fn shutdown_does_not_wait_for_guards_and_kept_locks() {
    let (server, mut client) = start();
    let locks = locks(&server);
    soon("nothing", locks.shutdown()).await;
    let guard = locks.acquire("door").await.unwrap();
    let kept = locks.lock("job").lease(ms(600_000)).release_after(ms(600_000));
    kept.acquire().await.unwrap().release().await.unwrap();
    soon("nothing", locks.shutdown()).await;
    assert!(guard.is_held());
    assert!(client.find_lock("job").is_some());
    // The locks can be used after it.
    locks.acquire("gate").await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}
