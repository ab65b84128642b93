//! Getting locks and giving them back, with every option.

use std::time::{Duration, Instant};

use crate::support::{locks, ms, soon, until};
use dlock_testkit::{SLOW_MACHINE, Server, start};
use redis_dlock_client::Error;

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
async fn held_lock_is_none_at_once_or_times_out() {
    let server = Server::start();
    server.client().acquire("door alice 60000");
    let lock = locks(&server).lock("door");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let start = Instant::now();
    let refused = lock.timeout(ms(300)).acquire().await.unwrap_err();
    let took = start.elapsed();
    assert!(
        matches!(refused, Error::Timeout { last: None, .. }),
        "{refused:?}"
    );
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
