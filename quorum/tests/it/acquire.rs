//! Healthy servers.

use redis_dlock_quorum::{Error, EventKind, LostReason, RunError};

use super::*;

#[tokio::test]
async fn quorum_lock_is_held_everywhere_and_a_majority_has_its_fence() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks();
    let mut last = 0;
    for _ in 0..20 {
        let guard = locks.acquire("door").await.unwrap();
        nodes.until_held("door", 5).await;
        assert_eq!(nodes.holders("door"), vec![guard.owner().to_string(); 5]);
        let fences = nodes.fences("door");
        let confirmed = fences.iter().filter(|fence| **fence == guard.fence()).count();
        assert!(confirmed >= 3, "{fences:?}");
        assert!(guard.fence() > last);
        last = guard.fence();
        assert!(guard.is_held() && guard.lost_reason().is_none());
        // A hundredth of the lease is subtracted.
        assert!(guard.remaining() < ms(29_700) && guard.remaining() > ms(29_700) - SLOW_MACHINE);
        guard.release().await.unwrap();
        nodes.until_free("door").await;
    }
}

#[tokio::test]
async fn free_quorum_lock_takes_one_request_per_server() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks();
    nodes.level_fences(&locks).await;
    let before = nodes.calls();
    let guard = locks.acquire("door").await.unwrap();
    nodes.until_held("door", 5).await;
    guard.release().await.unwrap();
    nodes.until_free("door").await;
    let calls: Vec<[u64; 3]> = nodes
        .calls()
        .iter()
        .zip(before)
        .map(|(now, before)| std::array::from_fn(|n| now[n] - before[n]))
        .collect();
    assert_eq!(calls, [[1, 0, 1]; 5], "ACQUIRE, EXTEND, RELEASE");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_of_64_locks_at_once_are_rarely_raised() {
    const TURNS: u64 = 10;
    let nodes = Nodes::start(5);
    let locks = nodes.locks();
    nodes.level_fences(&locks).await;
    let before: u64 = nodes.calls().iter().map(|calls| calls[1]).sum();
    let tasks: Vec<_> = (0..64)
        .map(|n| {
            let lock = locks.lock(format!("lock {n}"));
            tokio::spawn(async move {
                for _ in 0..TURNS {
                    // On a busy machine a majority may confirm it too late.
                    drop(lock.acquire().await.unwrap().release().await);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    // A raise takes at least one request, and at most four. Without MINFENCE nearly every acquisition takes one; the
    // bench says how few it is on a machine that is not busy.
    let raises: u64 = nodes.calls().iter().map(|calls| calls[1]).sum::<u64>() - before;
    assert!(
        raises < 64 * TURNS / 10,
        "{raises} raises in {} acquisitions",
        64 * TURNS
    );
}

#[tokio::test]
async fn held_quorum_lock_is_busy_and_times_out() {
    let mut nodes = Nodes::start(3);
    let (locks, others) = (nodes.locks(), nodes.locks());
    let guard = locks.acquire("door").await.unwrap();
    let refused = others.try_acquire("door").await.unwrap_err();
    assert!(matches!(refused, Error::Busy), "{refused:?}");
    // That is not why.
    nodes.servers[2].kill();
    let refused = others.lock("door").wait(ms(200)).acquire().await.unwrap_err();
    assert!(
        matches!(refused, Error::Timeout { last: None, .. }),
        "{refused:?}"
    );
    guard.release().await.unwrap();
    // Neither left anything behind.
    others.settle().await;
    nodes.until_free("door").await;
}

#[tokio::test]
async fn lock_that_others_hold_on_a_majority_is_busy_and_given_back() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    nodes.occupy([1, 2], "door");
    let refused = locks.try_acquire("door").await.unwrap_err();
    assert!(matches!(refused, Error::Busy), "{refused:?}");
    until("the first server to be free", || {
        nodes.servers[0].client().find_lock("door").is_none()
    })
    .await;
}

#[tokio::test]
async fn dropped_quorum_guard_is_released_everywhere() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    drop(locks.acquire("door").await.unwrap());
    nodes.until_free("door").await;
    // Also outside of any runtime.
    let guard = locks.acquire("door").await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn shared_quorum_lock_is_held_by_many_and_excludes_others() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    let (one, other) = (locks.lock("door").shared(), locks.lock("door").shared());
    let (one, other) = (one.acquire().await.unwrap(), other.acquire().await.unwrap());
    assert!(one.is_held() && other.is_held());
    let writer = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("door").await }
    });
    nodes.until_waiting("door", 1).await;
    // A reader that comes later does not overtake the writer.
    let late = locks.lock("door").shared().try_acquire().await.unwrap_err();
    assert!(matches!(late, Error::Busy), "{late:?}");
    one.release().await.unwrap();
    other.release().await.unwrap();
    let writer = soon("the writer", writer).await.unwrap().unwrap();
    assert!(matches!(
        locks.lock("door").shared().try_acquire().await,
        Err(Error::Busy)
    ));
    writer.release().await.unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn quorum_lease_is_renewed_everywhere() {
    let nodes = Nodes::start(3);
    let lock = nodes.locks().lock("door").lease(ms(10_000));
    let guard = lock.acquire().await.unwrap();
    let fence = guard.fence();
    nodes.until_held("door", 3).await;
    let before = nodes.calls();
    until("two renewals everywhere", || {
        let both = nodes.calls().into_iter().zip(&before);
        both.into_iter().all(|(now, before)| now[1] >= before[1] + 2)
    })
    .await;
    assert!(guard.is_held());
    let confirmed = nodes
        .fences("door")
        .into_iter()
        .filter(|other| *other == fence)
        .count();
    assert!(confirmed >= 2);
    assert!(guard.extend(ms(60_000)).await.unwrap() > ms(30_000));
    guard.release().await.unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn quorum_guard_is_lost_after_its_maximum_hold_time_or_without_renewal() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    let guard = locks.lock("door").max_hold(ms(300)).acquire().await.unwrap();
    assert_eq!(soon("a loss", guard.lost()).await, LostReason::MaxHoldExceeded);
    assert!(guard.token().is_cancelled() && !guard.is_held());
    drop(guard);
    nodes.until_free("door").await;
    let guard = locks
        .lock("door")
        .lease(ms(300))
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    assert_eq!(soon("a loss", guard.lost()).await, LostReason::LeaseExpired);
    assert!(matches!(
        guard.release().await,
        Err(Error::Lost(LostReason::LeaseExpired))
    ));
}

#[tokio::test]
async fn work_under_quorum_lock_is_cancelled_when_it_is_lost() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    let done = locks.lock("door").run(async |guard| guard.fence()).await;
    assert!(done.unwrap() > 0);
    nodes.until_free("door").await;
    let lock = locks.lock("door").max_hold(ms(200));
    let outcome = lock.run(async |_| std::future::pending::<()>().await).await;
    assert!(matches!(
        outcome,
        Err(RunError::Cancelled(LostReason::MaxHoldExceeded))
    ));
}

#[tokio::test]
async fn quorum_lock_is_reported_once_not_for_each_server() {
    let nodes = Nodes::start(3);
    let journal = Journal::default();
    let locks = nodes.locks_with(journal.settings());
    let guard = locks.acquire("door").await.unwrap();
    assert!(locks.try_acquire("door").await.is_err());
    guard.release().await.unwrap();
    drop(locks.acquire("door").await.unwrap());
    until("the release to be reported", || journal.count("Released") == 2).await;
    let lost = locks
        .lock("gate")
        .lease(ms(300))
        .auto_renew(false)
        .acquire()
        .await
        .unwrap();
    lost.lost().await;
    until("the loss to be reported", || journal.count("Lost") == 1).await;
    let counts = ["Acquired", "AcquireFailed", "Released", "Lost"].map(|name| journal.count(name));
    assert_eq!(counts, [3, 1, 2, 1]);
    assert_eq!(locks.dropped_events(), 0);
}

#[tokio::test]
async fn servers_without_quorum_setting_are_reported_with_the_setting() {
    let nodes = Nodes::with(3, "dlock.quorum no");
    let locks = nodes.locks();
    for outcome in [locks.try_acquire("door").await, locks.acquire("door").await] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
        assert!(error.to_string().contains("set dlock.quorum yes"), "{error}");
    }
    nodes.until_free("door").await;
}

#[test]
fn invalid_servers_and_options_are_rejected_before_anything_is_sent() {
    let none: [&str; 0] = [];
    assert!(matches!(Locks::open(none), Err(Error::Invalid(_))));
    let twice = Locks::open(["redis://127.0.0.1:7000/", "redis://127.0.0.1:7000/1"]);
    assert!(
        matches!(&twice, Err(Error::Invalid(why)) if why.contains("twice")),
        "{twice:?}"
    );
    for several in [
        "redis-cluster://127.0.0.1:7000/",
        "redis-sentinel://127.0.0.1/locks",
    ] {
        let locks = Locks::open([several]);
        assert!(
            matches!(&locks, Err(Error::Invalid(why)) if why.contains("no single server")),
            "{locks:?}"
        );
    }
    let locks = Locks::open(["redis://127.0.0.1:1/"]).unwrap();
    let lock = locks.lock("door").lease(ms(0));
    assert!(matches!(lock.blocking_acquire(), Err(Error::Invalid(_))));
}

#[test]
fn quorum_lock_is_acquired_and_released_without_a_runtime() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    let guard = locks.blocking_acquire("door").unwrap();
    let fence = guard.fence();
    assert!(matches!(locks.blocking_try_acquire("door"), Err(Error::Busy)));
    assert!(guard.blocking_extend(ms(60_000)).unwrap() > ms(30_000));
    guard.blocking_release().unwrap();
    assert!(locks.lock("door").blocking_run(|guard| guard.fence()).unwrap() > fence);
    locks.blocking_check("door").unwrap();
    let guard = locks.blocking_acquire("door").unwrap();
    assert!(guard.blocking_run(|guard| guard.is_held()).unwrap());
    let guard = locks
        .lock("door")
        .shared()
        .lease(ms(300))
        .auto_renew(false)
        .blocking_acquire()
        .unwrap();
    assert_eq!(guard.blocking_lost(), LostReason::LeaseExpired);
    drop(guard);
    assert!(locks.blocking_settle(SLOW_MACHINE));
}

#[tokio::test]
async fn quorum_event_has_fence_and_first_server() {
    let nodes = Nodes::start(3);
    let (sender, events) = std::sync::mpsc::channel();
    let settings = Settings::default().on_event(move |event| drop(sender.send(event.clone())));
    let guard = nodes.locks_with(settings).acquire("door").await.unwrap();
    let event = events.recv().unwrap();
    assert!(matches!(event.kind, EventKind::Acquired { fence, .. } if fence == guard.fence()));
    assert_eq!(
        event.server.to_string(),
        format!("127.0.0.1:{}", nodes.proxies[0].port())
    );
    assert_eq!(&event.owner, guard.owner());
}
