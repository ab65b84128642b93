//! A lost connection is a reason to check the locks.

use dlock_testkit::{Cluster, Proxy, Server, wait_for};
use redis_dlock_client::{Locks, LostReason};

use crate::support::{Journal, locks, ms, soon, until};

#[tokio::test]
async fn empty_restart_is_noticed_long_before_the_next_renewal() {
    let mut server = Server::start();
    // Renewed after 10 s.
    let lock = locks(&server).lock("door").lease(ms(30_000));
    let guard = lock.acquire().await.unwrap();
    server.kill();
    server.start_again();
    let reason = tokio::time::timeout(ms(5_000), guard.lost()).await;
    assert_eq!(reason, Ok(LostReason::NotHeld));
}

#[tokio::test]
async fn lost_connection_renews_every_hold_at_once() {
    const HOLDS: usize = 200;
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let journal = Journal::default();
    let locks = Locks::with(proxy.url(), journal.settings()).unwrap();
    let mut guards = Vec::new();
    for n in 0..HOLDS {
        let lock = locks.lock(format!("lock{n}")).lease(ms(60_000));
        guards.push(lock.acquire().await.unwrap());
    }
    assert_eq!(journal.count("Renewed"), 0);
    proxy.cut();
    soon("the renewals", async {
        while journal.count("Renewed") < HOLDS {
            tokio::time::sleep(ms(5)).await;
        }
    })
    .await;
    assert!(guards.iter().all(redis_dlock_client::Guard::is_held));
}

#[tokio::test]
async fn lost_connection_without_holds_is_not_replaced() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    locks.acquire("door").await.unwrap().release().await.unwrap();
    wait_for("both connections", || proxy.connections() == 2);
    proxy.cut();
    tokio::time::sleep(ms(300)).await;
    assert_eq!(proxy.connections(), 0);
    assert_eq!(locks.acquire("door").await.unwrap().holds(), 1);
}

#[tokio::test]
async fn lost_node_of_cluster_is_noticed_long_before_the_next_renewal() {
    let mut cluster = Cluster::start(3);
    let key = cluster.key_on(1, "door");
    let locks = Locks::open(format!("redis-cluster://127.0.0.1:{}", cluster.nodes[0].port())).unwrap();
    // Renewed after 20 s.
    let guard = locks.lock(&key).lease(ms(60_000)).acquire().await.unwrap();
    let mut client = cluster.nodes[1].client();
    until("the connection for renewals", || {
        client.ask::<String>("CLIENT LIST").contains("resp=3")
    })
    .await;
    cluster.nodes[1].kill();
    cluster.nodes[1].start_again();
    let reason = tokio::time::timeout(ms(16_000), guard.lost()).await;
    assert_eq!(reason, Ok(LostReason::NotHeld));
}
