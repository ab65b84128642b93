//! Waiting without a connection, without room or rights for a reader, and in a cluster.

use dlock_testkit::{Client, Cluster, Server, start};
use redis_dlock_client::Locks;
use tokio::task::JoinSet;

use crate::cluster::locks_of;
use crate::support::{locks, ms, soon, until};

/// Tasks that wait for a lock, once each has a place in its queue.
async fn queue(locks: &Locks, client: &mut Client, key: &str, tasks: usize) -> JoinSet<()> {
    let mut waiting = JoinSet::new();
    for _ in 0..tasks {
        let lock = locks.lock(key).lease(ms(60_000));
        waiting.spawn(async move { drop(lock.acquire().await.unwrap()) });
    }
    until("a place for each", || client.waiting(key) == tasks as i64).await;
    waiting
}

async fn serve(mut waiting: JoinSet<()>) {
    while let Some(served) = soon("a turn", waiting.join_next()).await {
        served.unwrap();
    }
}

#[tokio::test]
async fn free_lock_is_acquired_though_readers_find_no_room() {
    let server = Server::start();
    let mut client = server.client();
    let locks = locks(&server);
    locks.acquire("warm-up").await.unwrap().release().await.unwrap();
    let room: i64 = client.server_number("clients", "connected_clients");
    client.acquire("door alice 60000");
    client.ok(&format!("CONFIG SET maxclients {room}"));
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("door").await.map(drop) }
    });
    until("readers that fail", || {
        client.stat("dlock_errors_noinbox") > 0
            && client.server_number::<i64>("stats", "rejected_connections") > 0
    })
    .await;
    for _ in 0..10 {
        let guard = soon("a free lock", locks.acquire("gate")).await.unwrap();
        guard.release().await.unwrap();
    }
    client.ok("CONFIG SET maxclients 100");
    until("a place in the queue", || client.waiting("door") == 1).await;
    client.release("door alice");
    soon("the lock", waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn tasks_wait_at_all_nodes_of_a_cluster() {
    let cluster = Cluster::start(3);
    let locks = locks_of(&cluster, 0);
    let mut queues = Vec::new();
    let keys: Vec<String> = (0..3).map(|node| cluster.key_on(node, "door")).collect();
    for (node, key) in keys.iter().enumerate() {
        let mut client = cluster.client(node);
        client.acquire(&format!("{key} alice 60000"));
        queues.push(queue(&locks, &mut client, key, 10).await);
        let connected: i64 = client.server_number("clients", "connected_clients");
        assert!(connected < 20, "{connected}");
    }
    for (node, key) in keys.iter().enumerate() {
        cluster.client(node).release(&format!("{key} alice"));
    }
    for waiting in queues {
        serve(waiting).await;
    }
}

#[tokio::test]
async fn request_that_has_to_wait_without_permission_for_inboxes_says_so() {
    let (server, mut client) = start();
    client.ok("ACL SETUSER alice on >secret ~* +@all -dlock.grants");
    let locks = Locks::open(format!("redis://alice:secret@127.0.0.1:{}/", server.port())).unwrap();
    // One that is free needs none.
    locks.acquire("gate").await.unwrap().release().await.unwrap();
    client.acquire("door bob 60000");
    let refused = soon("the error", locks.acquire("door")).await.unwrap_err();
    assert!(refused.to_string().contains("dlock.grants"), "{refused}");
    assert_eq!(client.waiting("door"), 0);
    assert!(locks.lock("door").try_acquire().await.unwrap().is_none());
}

/// Those of the locks, without the one that asks.
fn connections(client: &mut Client) -> usize {
    let list: String = client.ask("CLIENT LIST TYPE normal");
    list.lines().count() - 1
}

#[tokio::test]
async fn idle_reader_is_closed_and_comes_back() {
    let (server, mut client) = start();
    let locks = locks(&server);
    client.acquire("door alice 300");
    locks.acquire("door").await.unwrap().release().await.unwrap();
    until("all connections", || connections(&mut client) == 3).await;
    until("the reader to go", || connections(&mut client) == 2).await;
    client.acquire("door alice 300");
    locks.acquire("door").await.unwrap().release().await.unwrap();
    assert_eq!(connections(&mut client), 3);
}
