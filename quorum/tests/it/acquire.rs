//! Healthy servers.

use redis_dlock_quorum::{Error, Lost, RunError};

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
        let confirmed = fences
            .iter()
            .filter(|fence| **fence == guard.fence().unwrap())
            .count();
        assert!(confirmed >= 3, "{fences:?}");
        assert!(guard.fence().unwrap() > last);
        last = guard.fence().unwrap();
        assert!(guard.is_held());
        // As with one server, a thousandth of the lease and 2 ms are subtracted.
        assert!(guard.remaining() <= ms(29_968) && guard.remaining() > ms(29_968) - SLOW_MACHINE);
        guard.release().await.unwrap();
        nodes.until_free("door").await;
    }
}

const ATTEMPTS: usize = 10;

#[tokio::test]
async fn free_quorum_lock_takes_one_request_per_server() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks();
    let mut attempts = vec![];
    // On a busy machine, a grant that arrives after the release is released once more, and a server whose reply is late
    // may have a smaller fence, which is raised. Not each time.
    while attempts.last() != Some(&[[1, 0, 1]; 5]) {
        assert!(
            attempts.len() < ATTEMPTS,
            "ACQUIRE, EXTEND, RELEASE: {attempts:?}"
        );
        nodes.level_fences(&locks).await;
        let before = nodes.calls();
        let guard = locks.acquire("door").await.unwrap();
        nodes.until_held("door", 5).await;
        guard.release().await.unwrap();
        locks.shutdown().await;
        let now = nodes.calls();
        let sent = |server: usize| std::array::from_fn(|n| now[server][n] - before[server][n]);
        let sent: [[u64; 3]; 5] = std::array::from_fn(sent);
        assert!(sent.iter().all(|sent| sent[0] == 1), "ACQUIRE: {sent:?}");
        attempts.push(sent);
    }
}

#[tokio::test]
async fn work_runs_under_the_lock_which_is_released_after_it() {
    let nodes = Nodes::start(3);
    let lock = nodes.locks().lock("door");
    let fence = lock.run(async |guard| guard.fence()).await.unwrap();
    assert!(fence.is_some());
    nodes.until_free("door").await;
    let failed = lock.try_run(async |_| Err::<(), _>("no paper")).await;
    assert!(matches!(failed, Err(RunError::Failed("no paper"))), "{failed:?}");
    nodes.until_free("door").await;
}

#[tokio::test]
async fn work_is_cancelled_when_a_majority_is_lost() {
    let nodes = Nodes::start(3);
    let lock = nodes.locks().lock("door").lease(ms(1000));
    let outcome = lock.run(async |_| {
        for server in &nodes.servers {
            server.client().send("DEL door");
        }
        std::future::pending::<()>().await;
    });
    let outcome = soon("the loss", outcome).await;
    assert!(matches!(outcome, Err(RunError::Cancelled(_))), "{outcome:?}");
}

#[tokio::test]
async fn ping_tells_whether_a_majority_replies() {
    let mut nodes = Nodes::start(3);
    let locks = nodes.locks();
    nodes.servers[0].kill();
    locks.ping().await.unwrap();
    nodes.servers[1].kill();
    let Err(Error::NoQuorum(failure)) = locks.ping().await else {
        panic!("a majority is down");
    };
    assert_eq!((failure.agreed, failure.failures.len()), (1, 2), "{failure}");
}

#[tokio::test]
async fn held_quorum_lock_is_busy_and_times_out() {
    let mut nodes = Nodes::start(3);
    let (locks, others) = (nodes.locks(), nodes.locks());
    let guard = locks.acquire("door").await.unwrap();
    assert!(others.lock("door").try_acquire().await.unwrap().is_none());
    // That is not why.
    nodes.servers[2].kill();
    let refused = others.lock("door").timeout(ms(200)).acquire().await.unwrap_err();
    assert!(
        matches!(refused, Error::Timeout { last: None, .. }),
        "{refused:?}"
    );
    guard.release().await.unwrap();
    // Neither left anything behind.
    others.shutdown().await;
    nodes.until_free("door").await;
}

#[tokio::test]
async fn lock_that_others_hold_on_a_majority_is_busy_and_given_back() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    nodes.occupy([1, 2], "door");
    assert!(locks.lock("door").try_acquire().await.unwrap().is_none());
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
    let writer = acquiring(&locks, "door");
    nodes.until_waiting("door", 1).await;
    // A reader that comes later does not overtake the writer.
    assert!(locks.lock("door").shared().try_acquire().await.unwrap().is_none());
    one.release().await.unwrap();
    other.release().await.unwrap();
    let writer = soon("the writer", writer).await.unwrap().unwrap();
    assert!(locks.lock("door").shared().try_acquire().await.unwrap().is_none());
    writer.release().await.unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn quorum_lease_is_renewed_everywhere() {
    let nodes = Nodes::start(3);
    let lock = nodes.locks().lock("door").lease(ms(10_000));
    let guard = lock.acquire().await.unwrap();
    let fence = guard.fence().unwrap();
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
async fn quorum_guard_is_lost_after_its_maximum_hold_time() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    let guard = locks.lock("door").max_hold(ms(300)).acquire().await.unwrap();
    assert_eq!(soon("a loss", guard.lost()).await, Lost::MaxHold);
    assert!(guard.token().is_cancelled() && !guard.is_held());
    drop(guard);
    nodes.until_free("door").await;
}

#[tokio::test]
async fn quorum_lock_is_reported_once_not_for_each_server() {
    let nodes = Nodes::start(3);
    let journal = Journal::default();
    let locks = nodes.locks_with(journal.settings());
    let guard = locks.acquire("door").await.unwrap();
    assert!(locks.lock("door").try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    drop(locks.acquire("door").await.unwrap());
    let lost = locks.lock("gate").max_hold(ms(300)).acquire().await.unwrap();
    lost.lost().await;
    until("the ends to be reported", || journal.count("Ended") == 3).await;
    let counts = ["Acquired", "NotAcquired", "Ended"].map(|name| journal.count(name));
    assert_eq!(counts, [3, 1, 3]);
}

#[tokio::test]
async fn quorum_lock_is_reported_even_if_its_caller_is_gone() {
    let nodes = Nodes::start(3);
    let journal = Journal::default();
    let locks = nodes.locks_with(journal.settings());
    let guard = locks.acquire("door").await.unwrap();
    let waiting = tokio::time::timeout(ms(50), locks.acquire("door")).await;
    assert!(waiting.is_err());
    until("it to be reported", || journal.count("NotAcquired") == 1).await;
    for proxy in &nodes.proxies {
        proxy.delay(Way::ToServer, ms(100));
    }
    let releasing = tokio::time::timeout(ms(20), guard.release()).await;
    assert!(releasing.is_err());
    assert_eq!(journal.count("Ended"), 1);
    nodes.until_free("door").await;
}

#[test]
fn quorum_locks_of_all_runtimes_share_one_connection_to_each_server() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks();
    let use_locks = async {
        let guard = locks.acquire("door").await.unwrap();
        guard.extend(ms(60_000)).await.unwrap();
        guard.release().await.unwrap();
        locks.ping().await.unwrap();
        locks.shutdown().await;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(use_locks);
    // Without tokio's sockets and timers, too.
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    bare.block_on(async { locks.acquire("door").await.unwrap().release().await.unwrap() });
    let connections: Vec<usize> = nodes.proxies.iter().map(Proxy::connections).collect();
    assert_eq!(connections, [1; 3]);
}

#[tokio::test]
async fn servers_without_quorum_setting_are_reported_with_the_setting() {
    let nodes = Nodes::with(3, "dlock.quorum no");
    let locks = nodes.locks();
    let tried = locks.lock("door").try_acquire().await.unwrap_err();
    let waited = locks.lock("door").timeout(ms(500)).acquire().await.unwrap_err();
    for error in [tried, waited] {
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
}
