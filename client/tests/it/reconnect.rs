//! A lost connection is a reason to check the locks.

use dlock_testkit::{Cluster, Proxy, Server};
use redis_dlock_client::{Locks, Lost};

use crate::support::{ms, until};

#[tokio::test]
async fn lost_connection_renews_every_hold_at_once() {
    const HOLDS: u64 = 200;
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    let mut guards = Vec::new();
    for n in 0..HOLDS {
        let lock = locks.lock(format!("lock{n}")).lease(ms(60_000));
        guards.push(lock.acquire().await.unwrap());
    }
    let mut client = server.client();
    assert_eq!(client.calls("dlock.extend"), 0);
    proxy.cut();
    until("the renewals", || client.calls("dlock.extend") >= HOLDS).await;
    assert!(guards.iter().all(redis_dlock_client::Guard::is_held));
}

#[tokio::test]
async fn lost_connection_without_holds_is_not_replaced() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = Locks::open(proxy.url()).unwrap();
    locks.acquire("door").await.unwrap().release().await.unwrap();
    proxy.cut();
    tokio::time::sleep(ms(300)).await;
    assert_eq!(proxy.connections(), 0);
    assert!(locks.acquire("door").await.unwrap().is_held());
}

#[tokio::test]
async fn lost_node_of_cluster_is_noticed_long_before_the_next_renewal() {
    let mut cluster = Cluster::start(3);
    let key = cluster.key_on(1, "door");
    let client = redis::cluster::ClusterClient::builder([cluster.nodes[0].url()])
        .use_protocol(redis::ProtocolVersion::RESP3)
        .build();
    let locks = Locks::open(client.unwrap()).unwrap();
    // Renewed after 20 s.
    let guard = locks.lock(&key).lease(ms(60_000)).acquire().await.unwrap();
    cluster.nodes[1].kill();
    cluster.nodes[1].start_again();
    let lost = tokio::time::timeout(ms(16_000), guard.lost()).await;
    assert_eq!(lost, Ok(Lost::NotHeld));
}
