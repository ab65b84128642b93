//! Locks on a majority of servers, of which some fail.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::{ms, soon, until, url};
use dlock_testkit::{Proxy, SLOW_MACHINE, Server, Way};
use redis_dlock_client::redlock::{Guard, Locks, NoQuorum};
use redis_dlock_client::{Error, LostReason, RunError, Settings};

/// Longer than any test goes on.
const PATIENCE: Duration = Duration::from_secs(60);

/// Some servers, each behind a network of its own.
struct Nodes {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
}

impl Nodes {
    fn start(count: usize) -> Self {
        let servers: Vec<Server> = (0..count).map(|_| Server::start()).collect();
        let proxies = servers.iter().map(|server| Proxy::to(server.port())).collect();
        Self { servers, proxies }
    }

    /// A client that has a connection to each of them.
    async fn locks(&self) -> Locks {
        self.locks_with(Settings::default()).await
    }

    /// A client whose requests only the timeout of the lock ends.
    async fn patient_locks(&self) -> Locks {
        self.locks_with(Settings::default().response_timeout(PATIENCE))
            .await
    }

    async fn locks_with(&self, settings: Settings) -> Locks {
        let locks = Locks::with(self.proxies.iter().map(Proxy::url), settings).unwrap();
        let guard = locks
            .lock("warm-up")
            .node_timeout(PATIENCE)
            .acquire()
            .await
            .unwrap();
        self.until_held_by("warm-up", self.servers.len()).await;
        guard.release().await.unwrap();
        self.until_free("warm-up").await;
        locks
    }

    /// Who holds the lock on each server that is there.
    fn holders(&self, key: &str) -> Vec<String> {
        let running = self.servers.iter().filter(|server| accepts(server));
        running.filter_map(|server| server.client().owner(key)).collect()
    }

    async fn until_free(&self, key: &str) {
        until(&format!("{key} to be free everywhere"), || {
            self.holders(key).is_empty()
        })
        .await;
    }

    async fn until_held_by(&self, key: &str, count: usize) {
        until(&format!("{count} servers to hold {key}"), || {
            self.holders(key).len() == count
        })
        .await;
    }

    fn occupy(&self, nodes: impl IntoIterator<Item = usize>, key: &str) {
        for node in nodes {
            self.servers[node]
                .client()
                .acquire(&format!("{key} somebody 60000"));
        }
    }
}

/// Whether the server has not been killed.
fn accepts(server: &Server) -> bool {
    TcpStream::connect(("127.0.0.1", server.port())).is_ok()
}

/// Extends until a majority has joined the lock and agrees, or it is lost.
async fn extended(guard: &Guard, lease: Duration) -> Result<Duration, LostReason> {
    loop {
        match guard.extend(lease).await {
            Ok(remaining) => return Ok(remaining),
            Err(Error::Lost(reason)) => return Err(reason),
            Err(_) => tokio::time::sleep(ms(2)).await,
        }
    }
}

fn no_quorum(error: Error) -> NoQuorum {
    match error {
        Error::NoQuorum(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn redlock_is_acquired_and_released_on_all_servers() {
    let nodes = Nodes::start(5);
    let guard = nodes.locks().await.acquire("door").await.unwrap();
    nodes.until_held_by("door", 5).await;
    assert_eq!(nodes.holders("door"), vec![guard.owner().to_string(); 5]);
    assert!(guard.is_held() && guard.lost_reason().is_none());
    // A hundredth of the lease is taken off.
    assert!(guard.remaining() < ms(29_700) && guard.remaining() > ms(29_700) - SLOW_MACHINE);
    guard.release().await.unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn dropped_redlock_guard_is_released_everywhere() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().await;
    drop(locks.acquire("door").await.unwrap());
    nodes.until_free("door").await;
    // Also outside of any runtime.
    let guard = locks.acquire("door").await.unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn redlock_needs_majority_of_five_servers() {
    let mut nodes = Nodes::start(5);
    let locks = nodes.locks().await;
    for node in [0, 1] {
        nodes.servers[node].kill();
    }
    locks.acquire("door").await.unwrap().release().await.unwrap();
    nodes.servers[2].kill();
    let start = Instant::now();
    let failure = no_quorum(locks.lock("door").try_acquire().await.unwrap_err());
    assert!(start.elapsed() < SLOW_MACHINE, "{:?}", start.elapsed());
    assert_eq!((failure.needed, failure.failures.len()), (3, 3), "{failure}");
    for node in 0..3 {
        let address = format!("127.0.0.1:{}", nodes.proxies[node].port());
        assert!(failure.to_string().contains(&address), "{failure}");
    }
    nodes.until_free("door").await;
    // With the reason, when the time is over.
    let refused = locks.lock("door").wait(ms(300)).acquire().await.unwrap_err();
    assert!(
        matches!(&refused, Error::Timeout { last: Some(last), .. } if matches!(**last, Error::NoQuorum(_))),
        "{refused:?}"
    );
    nodes.until_free("door").await;
}

#[tokio::test]
async fn slow_server_joins_redlock_late() {
    let mut nodes = Nodes::start(3);
    let locks = nodes.patient_locks().await;
    nodes.proxies[0].delay(Way::ToClient, ms(4000));
    let start = Instant::now();
    let lock = locks.lock("door").node_timeout(PATIENCE);
    let guard = lock.acquire().await.unwrap();
    assert!(start.elapsed() < SLOW_MACHINE, "{:?}", start.elapsed());
    nodes.until_held_by("door", 3).await;
    nodes.proxies[0].delay(Way::ToClient, ms(0));
    // The late one counts: one of the others may go.
    nodes.servers[1].kill();
    let lease = soon("a majority", extended(&guard, ms(60_000))).await.unwrap();
    assert!(lease > ms(60_000) - SLOW_MACHINE, "{lease:?}");
    guard.release().await.unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn late_grants_of_failed_attempt_are_released() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().await;
    nodes.occupy([0, 1], "door");
    nodes.proxies[2].delay(Way::ToClient, ms(600));
    let start = Instant::now();
    let refused = locks.lock("door").try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Busy), "{refused:?}");
    assert!(start.elapsed() < ms(500), "{:?}", start.elapsed());
    until("the late grant to be released", || {
        nodes.holders("door").len() == 2
    })
    .await;
}

#[tokio::test]
async fn minority_grants_are_released() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().await;
    nodes.occupy([0, 1], "door");
    // The grant is there before the refusals are.
    for node in [0, 1] {
        nodes.proxies[node].delay(Way::ToClient, ms(300));
    }
    let asking = tokio::spawn(async move { locks.lock("door").try_acquire().await });
    until("the grant", || nodes.holders("door").len() == 3).await;
    let refused = asking.await.unwrap().unwrap_err();
    assert!(matches!(refused, Error::Busy), "{refused:?}");
    until("the grant to be released", || nodes.holders("door").len() == 2).await;
}

#[tokio::test]
async fn grant_with_lost_reply_is_released() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().await;
    nodes.occupy([0, 1], "door");
    // The third server grants, and its answer is lost with the connection.
    nodes.proxies[2].cut_after(Way::ToClient, 0);
    let refused = locks.lock("door").try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Busy | Error::NoQuorum(_)), "{refused:?}");
    until("the lost grant to be released", || {
        nodes.holders("door").len() == 2
    })
    .await;
}

#[tokio::test]
async fn unresponsive_server_costs_at_most_its_timeout() {
    let nodes = Nodes::start(3);
    let locks = nodes.patient_locks().await;
    for node in [0, 1] {
        nodes.proxies[node].freeze(Way::ToServer);
    }
    let lock = locks.lock("door").node_timeout(ms(200));
    let start = Instant::now();
    let failure = no_quorum(lock.try_acquire().await.unwrap_err());
    let took = start.elapsed();
    assert!(took >= ms(200) && took < ms(200) + SLOW_MACHINE, "{took:?}");
    assert_eq!((failure.agreed, failure.failures.len()), (1, 2), "{failure}");
    nodes.until_free("door").await;
    nodes.proxies.iter().for_each(Proxy::thaw);
    lock.acquire().await.unwrap().release().await.unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn stopped_servers_count_as_dead_until_they_resume() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks().await;
    nodes.servers[0].stop();
    nodes.servers[1].client().ok("CLIENT PAUSE 4000 ALL");
    let lock = locks.lock("door").node_timeout(ms(500));
    let guard = lock.acquire().await.unwrap();
    soon("the release", guard.release()).await.unwrap();
    nodes.servers[2].stop();
    let failure = no_quorum(lock.try_acquire().await.unwrap_err());
    assert_eq!((failure.needed, failure.agreed), (3, 2), "{failure}");
    nodes.servers[0].resume();
    nodes.servers[2].resume();
    let guard = soon("a majority", lock.acquire()).await.unwrap();
    guard.release().await.unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn even_number_of_servers_needs_more_than_half() {
    let nodes = Nodes::start(4);
    let locks = nodes.locks().await;
    nodes.occupy([0, 1], "door");
    let start = Instant::now();
    assert!(matches!(locks.try_acquire("door").await, Err(Error::Busy)));
    assert!(start.elapsed() < SLOW_MACHINE);
    until("the minority to be released", || nodes.holders("door").len() == 2).await;
    nodes.servers[1].client().release("door somebody");
    locks.acquire("door").await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn contending_callers_hold_redlock_one_at_a_time() {
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    let nodes = Nodes::start(5);
    let mut callers = Vec::new();
    for _ in 0..2 {
        let lock = nodes.locks().await.lock("door");
        callers.push(tokio::spawn(async move {
            for _ in 0..10 {
                let guard = lock.acquire().await.unwrap();
                assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                tokio::time::sleep(ms(5)).await;
                assert!(guard.is_held());
                assert_eq!(INSIDE.fetch_sub(1, Ordering::SeqCst), 1);
                guard.release().await.unwrap();
            }
        }));
    }
    for caller in callers {
        soon("all turns", caller).await.unwrap();
    }
    nodes.until_free("door").await;
}

#[tokio::test]
async fn shared_redlock_excludes_writer() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().await;
    let reading = locks.lock("book").shared();
    let readers = [reading.acquire().await.unwrap(), reading.acquire().await.unwrap()];
    assert!(matches!(locks.try_acquire("book").await, Err(Error::Busy)));
    drop(readers);
    nodes.until_free("book").await;
    locks.try_acquire("book").await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn redlock_is_renewed_with_minority_down() {
    let mut nodes = Nodes::start(5);
    let guard = nodes
        .locks()
        .await
        .lock("door")
        .lease(ms(1500))
        .acquire()
        .await
        .unwrap();
    nodes.until_held_by("door", 5).await;
    nodes.servers[0].kill();
    nodes.servers[1].kill();
    let start = Instant::now();
    while start.elapsed() < ms(4500) {
        assert!(guard.is_held(), "{guard:?} after {:?}", start.elapsed());
        tokio::time::sleep(ms(20)).await;
    }
    assert_eq!(nodes.holders("door").len(), 3);
    guard.release().await.unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn lost_majority_is_reported_and_rest_released() {
    let mut nodes = Nodes::start(3);
    let guard = nodes
        .locks()
        .await
        .lock("door")
        .lease(ms(1000))
        .acquire()
        .await
        .unwrap();
    nodes.until_held_by("door", 3).await;
    let start = Instant::now();
    nodes.servers[0].kill();
    nodes.servers[1].kill();
    assert_eq!(soon("the reason", guard.lost()).await, LostReason::LeaseExpired);
    assert!(start.elapsed() < ms(1000) + SLOW_MACHINE);
    assert!(!guard.is_held() && guard.remaining().is_zero() && guard.token().is_cancelled());
    nodes.until_free("door").await;
    assert!(matches!(guard.extend(ms(1000)).await, Err(Error::Lost(_))));
    assert!(matches!(
        guard.release().await,
        Err(Error::Lost(LostReason::LeaseExpired))
    ));
}

#[tokio::test]
async fn empty_restart_of_majority_is_noticed() {
    let mut nodes = Nodes::start(3);
    let guard = nodes
        .locks()
        .await
        .lock("door")
        .lease(ms(12_000))
        .acquire()
        .await
        .unwrap();
    nodes.until_held_by("door", 3).await;
    // The task that adds the last server to the lock needs this runtime, which the restarts block.
    tokio::time::sleep(ms(200)).await;
    for node in [0, 1] {
        nodes.servers[node].crash_and_restart();
    }
    let start = Instant::now();
    assert_eq!(soon("the reason", guard.lost()).await, LostReason::NotHeld);
    assert!(
        start.elapsed() < ms(10_000),
        "before the leases expire: {:?}",
        start.elapsed()
    );
    nodes.until_free("door").await;
}

#[tokio::test]
async fn reported_loss_of_majority_is_notified_at_once() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().await;
    let start = Instant::now();
    // Each time a second would pass until somebody looks by himself.
    for _ in 0..6 {
        let guard = locks.acquire("door").await.unwrap();
        nodes.until_held_by("door", 3).await;
        for server in &nodes.servers {
            server.client().call("DEL door").unwrap();
        }
        let lost = soon("an answer", extended(&guard, ms(60_000))).await.unwrap_err();
        assert_eq!(lost, LostReason::NotHeld);
        assert_eq!(soon("the reason", guard.lost()).await, LostReason::NotHeld);
    }
    assert!(start.elapsed() < SLOW_MACHINE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn empty_restart_of_minority_loses_nothing() {
    let mut nodes = Nodes::start(3);
    let guard = nodes
        .locks()
        .await
        .lock("door")
        .lease(ms(900))
        .acquire()
        .await
        .unwrap();
    nodes.until_held_by("door", 3).await;
    nodes.servers[0].crash_and_restart();
    tokio::time::sleep(ms(2000)).await;
    assert!(guard.is_held());
    let remaining = soon("a majority", extended(&guard, ms(5000))).await.unwrap();
    assert!(remaining > ms(4900) - SLOW_MACHINE, "{remaining:?}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn extend_needs_majority() {
    let nodes = Nodes::start(3);
    let lock = nodes
        .locks()
        .await
        .lock("door")
        .lease(ms(20_000))
        .auto_renew(false);
    let guard = lock.node_timeout(ms(300)).acquire().await.unwrap();
    nodes.until_held_by("door", 3).await;
    let lease = soon("a majority", extended(&guard, ms(60_000))).await.unwrap();
    // The hundredth is one of the longer lease.
    assert!(lease > ms(50_000) && lease <= ms(59_398), "{lease:?}");
    for node in [0, 1] {
        nodes.proxies[node].freeze(Way::ToServer);
    }
    let failure = no_quorum(guard.extend(ms(80_000)).await.unwrap_err());
    assert_eq!((failure.needed, failure.failures.len()), (2, 2), "{failure}");
    assert!(guard.is_held() && guard.remaining() < ms(60_000));
    nodes.proxies.iter().for_each(Proxy::thaw);
    soon("an answer", guard.release()).await.unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn node_timeout_is_independent_of_remaining_wait() {
    let nodes = Nodes::start(3);
    let lock = nodes.patient_locks().await.lock("door").node_timeout(PATIENCE);
    let guard = lock.wait(ms(3000)).acquire().await.unwrap();
    nodes.until_held_by("door", 3).await;
    for proxy in &nodes.proxies {
        proxy.delay(Way::ToClient, ms(4000));
    }
    let remaining = guard.extend(ms(60_000)).await.unwrap();
    assert!(remaining > ms(45_000), "{remaining:?}");
    guard.release().await.unwrap();
    nodes.until_free("door").await;
}

#[tokio::test]
async fn lease_expired_before_majority_is_not_returned() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().await;
    for proxy in &nodes.proxies {
        proxy.delay(Way::ToClient, ms(300));
    }
    let late = locks
        .lock("door")
        .lease(ms(200))
        .node_timeout(Duration::from_secs(5))
        .try_acquire()
        .await;
    let failure = no_quorum(late.unwrap_err());
    assert!(
        failure
            .failures
            .iter()
            .all(|node| matches!(node.error, Error::Lost(LostReason::LeaseExpired)))
    );
    nodes.until_free("door").await;
}

#[tokio::test]
async fn permanent_rejection_by_majority_is_returned_at_once() {
    let nodes = Nodes::start(3);
    for node in [0, 1] {
        nodes.servers[node].client().ok("SET text value");
    }
    let start = Instant::now();
    let failure = no_quorum(nodes.locks().await.acquire("text").await.unwrap_err());
    assert!(start.elapsed() < SLOW_MACHINE * 2, "{:?}", start.elapsed());
    assert!(failure.to_string().contains("WRONGTYPE"), "{failure}");
}

#[tokio::test]
async fn dropped_redlock_acquire_leaves_no_lock() {
    let nodes = Nodes::start(3);
    let locks = nodes.locks().await;
    for proxy in &nodes.proxies {
        proxy.delay(Way::ToClient, ms(200));
    }
    let asking = tokio::time::timeout(ms(100), locks.acquire("door")).await;
    assert!(asking.is_err());
    nodes.until_free("door").await;
}

#[tokio::test]
async fn redlock_run_cancels_work_on_loss() {
    let nodes = Nodes::start(3);
    let lock = nodes.locks().await.lock("door").lease(ms(3000));
    assert!(lock.run(async |guard| guard.is_held()).await.unwrap());
    nodes.until_free("door").await;
    let running = tokio::spawn(async move { lock.run(async |_| std::future::pending::<()>().await).await });
    nodes.until_held_by("door", 3).await;
    for server in &nodes.servers {
        server.client().call("DEL door").unwrap();
    }
    let outcome = soon("the end of the work", running).await.unwrap();
    assert!(
        matches!(outcome, Err(RunError::Cancelled(LostReason::NotHeld))),
        "{outcome:?}"
    );
}

#[test]
fn duplicate_or_missing_servers_are_rejected() {
    let server = Server::start();
    let twice = Locks::open([url(&server), format!("{}1", url(&server))]).unwrap_err();
    assert!(
        matches!(&twice, Error::Invalid(text) if text.contains("twice")),
        "{twice:?}"
    );
    let none = Locks::open(Vec::<String>::new()).unwrap_err();
    assert!(matches!(none, Error::Invalid(_)), "{none:?}");
}
