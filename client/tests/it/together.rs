//! Several locks at once: all or none, in whatever order they are named.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{locks, ms, soon, until, until_free, url};
use dlock_testkit::{SLOW_MACHINE, Server, start};
use redis_dlock_client::{Error, Locks, LostReason, RunError, acquire_all};

#[tokio::test]
async fn acquire_all_uses_one_owner() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let guards = acquire_all([locks.lock("b"), locks.lock("a")]).await.unwrap();
    let keys: Vec<&[u8]> = guards.guards().iter().map(|guard| guard.key()).collect();
    assert_eq!(keys, [b"b", b"a"], "in the order that was named");
    assert_eq!(guards.get("a").unwrap().key(), b"a");
    assert!(guards.get("c").is_none());
    assert!(guards.is_held() && guards.lost_reason().is_none() && !guards.remaining().is_zero());
    assert!(client.owner("a").is_some());
    assert_eq!(client.owner("a"), client.owner("b"));
    guards.release().await.unwrap();
    assert!(client.find_lock("a").is_none() && client.find_lock("b").is_none());
}

#[tokio::test]
async fn acquire_all_respects_options_of_each_lock() {
    let server = Server::start();
    let locks = locks(&server);
    let wanted = || [locks.lock("book").shared(), locks.lock("pool").limit(2)];
    let _one = acquire_all(wanted()).await.unwrap();
    let _other = acquire_all(wanted()).await.unwrap();
    let third = acquire_all(wanted().map(|lock| lock.wait(ms(0)))).await;
    assert!(matches!(third, Err(Error::Busy)), "{third:?}");
}

#[tokio::test]
async fn acquire_all_timeout_keeps_no_lock() {
    let (server, mut client) = start();
    client.acquire("c alice 60000");
    let locks = locks(&server);
    let start = Instant::now();
    let wanted = ["c", "b", "a"].map(|key| locks.lock(key).wait(ms(300)));
    let refused = acquire_all(wanted).await.unwrap_err();
    let is_expected = matches!(&refused, Error::Timeout { key, .. } if key == "c");
    assert!(is_expected, "{refused:?}");
    let is_expected = refused.to_string().contains("waiting for c: others held it");
    assert!(is_expected, "{refused}");
    let took = start.elapsed();
    assert!(took >= ms(300) && took < ms(300) + SLOW_MACHINE, "{took:?}");
    for key in ["a", "b"] {
        until_free(&mut client, key).await;
    }
    assert_eq!(client.waiting("c"), 0);
}

#[tokio::test]
async fn acquire_all_times_out_when_wait_is_over() {
    let server = Server::start();
    server.client().acquire("b alice 60000");
    let locks = locks(&server);
    let wanted = ["a", "b"].map(|key| locks.lock(key).wait(Duration::from_nanos(1)));
    let refused = acquire_all(wanted).await.unwrap_err();
    assert!(matches!(refused, Error::Timeout { .. }), "{refused:?}");
}

#[tokio::test]
async fn dropped_acquire_all_releases_everything() {
    let (server, mut client) = start();
    client.acquire("b alice 60000");
    let locks = locks(&server);
    let task = tokio::spawn(acquire_all([locks.lock("a"), locks.lock("b")]));
    until("a place in the queue", || client.waiting("b") == 1).await;
    task.abort();
    until_free(&mut client, "a").await;
    until("nobody to wait", || client.waiting("b") == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acquire_all_in_opposite_orders_does_not_deadlock() {
    const CALLERS: usize = 40;
    let server = Server::start();
    let locks = locks(&server);
    let inside = Arc::new([const { AtomicU32::new(0) }; 4]);
    let mut callers = Vec::new();
    for n in 0..CALLERS {
        let (locks, inside) = (locks.clone(), Arc::clone(&inside));
        callers.push(tokio::spawn(async move {
            for turn in 0..10 {
                // Any two or three of the four, in any direction.
                let first = (n + turn) % 4;
                let mut chosen: Vec<usize> = (0..2 + turn % 2).map(|step| (first + step) % 4).collect();
                if n % 2 == 0 {
                    chosen.reverse();
                }
                let wanted = chosen.iter().map(|key| locks.lock(format!("door{key}")));
                let guards = acquire_all(wanted.collect::<Vec<_>>()).await.unwrap();
                for &key in &chosen {
                    assert_eq!(inside[key].fetch_add(1, Ordering::SeqCst), 0, "two in door{key}");
                }
                tokio::task::yield_now().await;
                chosen
                    .iter()
                    .for_each(|&key| _ = inside[key].fetch_sub(1, Ordering::SeqCst));
                guards.release().await.unwrap();
            }
        }));
    }
    for caller in callers {
        soon("all turns of a caller", caller).await.unwrap();
    }
}

#[tokio::test]
async fn loss_of_one_lock_is_loss_of_all() {
    let server = Server::start();
    let locks = locks(&server);
    let guards = acquire_all(["a", "b"].map(|key| locks.lock(key).lease(ms(3000))))
        .await
        .unwrap();
    server.client().call("DEL b").unwrap();
    assert_eq!(soon("the reason", guards.lost()).await, LostReason::NotHeld);
    assert!(!guards.is_held() && guards.remaining().is_zero());
    assert!(guards.release().await.is_err());
    until_free(&mut server.client(), "a").await;
}

#[tokio::test]
async fn extend_and_token_of_several_guards_cover_all_of_them() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let guards = acquire_all(["b", "a"].map(|key| locks.lock(key).lease(ms(3000))))
        .await
        .unwrap();
    assert!(guards.extend(ms(60_000)).await.unwrap() > ms(50_000));
    for key in ["a", "b"] {
        assert!(client.lock(key).holders[0].lease_ms > 50_000);
    }
    let token = guards.token();
    client.call("DEL a").unwrap();
    assert!(!token.is_cancelled());
    assert!(guards.extend(ms(60_000)).await.unwrap_err().is_lost());
    soon("the token", token.cancelled()).await;
    drop(guards);
    let guards = acquire_all([locks.lock("c")]).await.unwrap();
    let token = guards.token();
    guards.release().await.unwrap();
    soon("the token of released guards", token.cancelled()).await;
}

#[tokio::test]
async fn run_under_several_locks_is_cancelled_by_loss_of_one() {
    let server = Server::start();
    let locks = locks(&server);
    let acquire = || acquire_all(["a", "b"].map(|key| locks.lock(key).lease(ms(3000))));
    let done = acquire().await.unwrap();
    let done = done.run(async |guards| guards.guards().len()).await;
    assert_eq!(done.unwrap(), 2);
    let running = acquire().await.unwrap().run(async |_| {
        server.client().call("DEL b").unwrap();
        std::future::pending::<()>().await
    });
    let cancelled = soon("the loss", running).await;
    let is_expected = matches!(cancelled, Err(RunError::Cancelled(LostReason::NotHeld)));
    assert!(is_expected, "{cancelled:?}");
    until_free(&mut server.client(), "a").await;
}

#[tokio::test]
async fn first_lock_is_renewed_while_others_are_awaited() {
    let (server, mut client) = start();
    client.acquire("b alice 3500");
    let locks = locks(&server);
    let wanted = ["a", "b"].map(|key| locks.lock(key).lease(ms(3000)));
    let guards = acquire_all(wanted).await.unwrap();
    assert!(guards.is_held());
    // Without renewal the first one is lost by then.
    client.acquire("c alice 2500");
    let wanted = ["a2", "c"].map(|key| locks.lock(key).lease(ms(1000)).auto_renew(false));
    let lost = acquire_all(wanted).await.unwrap_err();
    assert!(matches!(lost, Error::Lost(LostReason::LeaseExpired)), "{lost:?}");
}

#[tokio::test]
async fn locks_without_common_order_are_rejected() {
    let server = Server::start();
    let (one, other) = (locks(&server), Locks::open(url(&server)).unwrap());
    let twice = acquire_all([one.lock("a"), one.lock("a")]).await.unwrap_err();
    let is_expected = matches!(&twice, Error::Invalid(text) if text.contains("a is named twice"));
    assert!(is_expected, "{twice:?}");
    let apart = acquire_all([one.lock("a"), other.lock("b")]).await.unwrap_err();
    assert!(matches!(apart, Error::Invalid(_)), "{apart:?}");
    assert!(acquire_all([]).await.unwrap().is_held());
}
