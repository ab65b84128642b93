//! A free lock in one round trip, and what goes with it.

use redis_dlock_quorum::Error;
use tokio::task::JoinSet;

use super::*;

/// Of a slow network, one way.
const DELAY: Duration = ms(300);

#[tokio::test]
async fn free_lock_takes_one_round_trip() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks();
    locks.acquire("warm-up").await.unwrap().release().await.unwrap();
    for proxy in &nodes.proxies {
        proxy.delay(Way::ToServer, DELAY);
    }
    let start = Instant::now();
    let guard = locks.acquire("door").await.unwrap();
    let took = start.elapsed();
    assert!(took >= DELAY && took < DELAY * 2, "{took:?}");
    guard.release().await.unwrap();
}

/// A server whose clock is ahead, or was until its restart: the others accept no such fence.
#[tokio::test]
async fn server_ahead_of_the_bounds_of_the_others_does_not_hang_their_locks() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks();
    let last = locks.acquire("door").await.unwrap().fence().unwrap();
    locks.shutdown().await;
    let mut ahead = nodes.servers[1].client();
    ahead.ok("CONFIG SET dlock.startup-grace-ms 3600000");
    // By half an hour.
    let fence = last + 30 * 60_000 * 2048;
    ahead.acquire(&format!("door somebody 60000 MINFENCE {fence}"));
    ahead.release("door somebody");
    ahead.ok("CONFIG SET dlock.startup-grace-ms 0");
    for _ in 0..3 {
        let lock = locks.lock("door").timeout(NODE_TIMEOUT * 3);
        let guard = lock.acquire().await.unwrap();
        assert!(guard.fence().unwrap() > last && guard.fence().unwrap() < fence);
        guard.release().await.unwrap();
        locks.shutdown().await;
    }
}

#[tokio::test]
async fn even_split_of_the_votes_is_busy() {
    let mut nodes = Nodes::start(5);
    nodes.servers[4].kill();
    let locks = nodes.locks();
    nodes.occupy([0, 1], "door");
    assert!(locks.lock("door").try_acquire().await.unwrap().is_none());
    // Who waits is not told that too few servers are up, and gets it.
    let refused = locks.lock("door").timeout(ms(300)).acquire().await.unwrap_err();
    assert!(
        matches!(refused, Error::Timeout { last: None, .. }),
        "{refused:?}"
    );
    let waiting = acquiring(&locks, "door");
    nodes.until_waiting("door", 1).await;
    for server in 0..2 {
        nodes.servers[server].client().release("door somebody");
    }
    let guard = soon("the lock", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

/// As cron jobs do.
#[tokio::test]
async fn one_of_several_that_try_at_once_has_the_lock() {
    let nodes = Nodes::start(5);
    let clients: Vec<Locks> = (0..6).map(|_| nodes.locks()).collect();
    for locks in &clients {
        locks.acquire("warm-up").await.unwrap().release().await.unwrap();
    }
    for turn in 0..10 {
        let key = format!("job {turn}");
        let mut trying = JoinSet::new();
        for locks in &clients {
            let lock = locks.lock(&key);
            trying.spawn(async move { lock.try_acquire().await.unwrap() });
        }
        let winners = trying.join_all().await.into_iter().flatten().count();
        assert_eq!(winners, 1, "{key}");
    }
}

#[tokio::test]
async fn lock_is_released_at_servers_whose_grant_has_not_arrived() {
    let nodes = Nodes::start(5);
    let locks = nodes.locks();
    locks.acquire("warm-up").await.unwrap().release().await.unwrap();
    for proxy in &nodes.proxies[3..] {
        proxy.delay(Way::ToClient, DELAY);
    }
    locks.acquire("door").await.unwrap().release().await.unwrap();
    soon("the releases", locks.shutdown()).await;
    assert_eq!(nodes.holders("door"), [""; 0]);
}

#[tokio::test]
async fn two_names_of_one_server_are_refused() {
    let nodes = Nodes::start(2);
    let alias = Proxy::to(nodes.servers[0].port());
    let urls = nodes.proxies.iter().map(Proxy::url).chain([alias.url()]);
    let locks = Locks::open(urls).unwrap();
    for refused in [
        locks.acquire("door").await,
        locks.lock("door").shared().acquire().await,
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, Error::Invalid(why) if why.contains("are the same server")),
            "{refused:?}"
        );
    }
    nodes.until_free("door").await;
}

#[tokio::test]
async fn lock_that_nobody_held_is_not_said_to_be_held() {
    let nodes = Nodes::start(3);
    for server in &nodes.servers[1..] {
        server.stop();
    }
    for timeout in [ms(300), NODE_TIMEOUT * 2] {
        let lock = nodes.locks().lock("door").timeout(timeout);
        let refused = lock.acquire().await.unwrap_err();
        assert!(
            matches!(refused, Error::Timeout { last: Some(_), .. }),
            "{refused:?}"
        );
        assert!(!refused.to_string().contains("others held it"), "{refused}");
    }
    for server in &nodes.servers[1..] {
        server.resume();
    }
}
