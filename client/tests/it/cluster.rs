//! A cluster that loses nodes: waiting goes on at another one.

use crate::support::{ms, soon, until};
use dlock_testkit::Cluster;
use redis::cluster::ClusterClient;
use redis_dlock_client::{Error, Locks};

/// The locks of a cluster of which one node is known.
pub fn locks_of(cluster: &Cluster, node: usize) -> Locks {
    let client = ClusterClient::new([cluster.nodes[node].url()]).unwrap();
    Locks::open(client).unwrap()
}

/// Waits for a lock that is held until it is released.
async fn wait_for_lock(locks: &Locks, cluster: &Cluster, node: usize, key: &str) {
    let mut client = cluster.client(node);
    client.acquire(&format!("{key} alice 60000"));
    let waiting = tokio::spawn({
        let lock = locks.lock(key).lease(ms(10_000));
        async move { lock.acquire().await }
    });
    until("a place in the queue", || client.waiting(key) == 1).await;
    client.release(&format!("{key} alice"));
    let guard = soon("the lock", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn release_of_broken_lock_in_cluster_is_unconfirmed() {
    let cluster = Cluster::start(3);
    let locks = locks_of(&cluster, 0);
    let key = cluster.key_on(1, "door");
    let guard = locks.acquire(&key).await.unwrap();
    cluster.client(1).call(&format!("DEL {key}")).unwrap();
    // The connection may have sent the release before, by itself.
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Unconfirmed(_))), "{released:?}");
}

#[tokio::test]
async fn moved_lock_is_rejected_for_single_node_address() {
    let cluster = Cluster::start(3);
    let locks = Locks::open(format!("redis://127.0.0.1:{}", cluster.nodes[0].port())).unwrap();
    let lock = locks.lock(cluster.key_on(1, "door"));
    for error in [
        soon("a refusal", lock.acquire()).await.map(drop).unwrap_err(),
        lock.try_acquire().await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        assert!(error.to_string().contains("ClusterClient"), "{error}");
    }
    let lock = locks.lock(cluster.key_on(0, "door"));
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn waiter_follows_cluster_failover() {
    let mut cluster = Cluster::start(3);
    let mut replica = cluster.add_replica(0);
    let locks = locks_of(&cluster, 1);
    let key = cluster.key_on(0, "door");
    // From now on the client knows who serves the slot.
    wait_for_lock(&locks, &cluster, 0, &key).await;
    cluster.client(0).sync();
    cluster.nodes[0].kill();
    until("the new primary", || {
        replica.call(&format!("DLOCK.OWNER {key}")).is_ok()
    })
    .await;
    until("a grant of the new primary", || {
        replica.call(&format!("DLOCK.ACQUIRE {key} alice 60000")).is_ok()
    })
    .await;
    replica.release(&format!("{key} alice"));
    wait_for_lock(&locks, &cluster, 3, &key).await;
}
