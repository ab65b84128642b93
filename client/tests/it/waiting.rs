//! Waiting without a connection, on a bad network: no request is forgotten, and each keeps its place.

use std::sync::{Arc, Mutex};

use dlock_testkit::{Client, Cluster, Proxy, Server, Way, start};
use redis_dlock_client::Locks;
use tokio::task::JoinSet;

use crate::cluster::locks_of;
use crate::support::{locks, ms, soon, until, until_free};

/// Tasks that wait for a lock, in the order of their numbers, and the order in which they were served.
struct Queue {
    tasks: JoinSet<()>,
    served: Arc<Mutex<Vec<usize>>>,
}

impl Queue {
    /// All wait for `door`, which is held.
    async fn of(locks: &Locks, client: &mut Client, tasks: usize) -> Self {
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = JoinSet::new();
        for n in 0..tasks {
            let (lock, served) = (locks.lock("door").lease(ms(60_000)), Arc::clone(&served));
            waiting.spawn(async move {
                let guard = lock.acquire().await.unwrap();
                served.lock().unwrap().push(n);
                drop(guard);
            });
        }
        until("a place for each", || client.waiting("door") == tasks as i64).await;
        Self {
            tasks: waiting,
            served,
        }
    }

    async fn serve_in_order(mut self) {
        while let Some(done) = soon("the next turn", self.tasks.join_next()).await {
            done.unwrap();
        }
        let served = self.served.lock().unwrap();
        assert!(served.is_sorted(), "{served:?}");
    }
}

#[tokio::test]
async fn tasks_are_served_in_order_while_their_connections_are_killed() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let locks = locks(&server);
    let queue = Queue::of(&locks, &mut client, 200).await;
    client.release("door alice");
    let mut killer = server.client();
    let killing = tokio::spawn(async move {
        loop {
            killer.call("CLIENT KILL TYPE normal SKIPME yes").unwrap();
            tokio::time::sleep(ms(15)).await;
        }
    });
    queue.serve_in_order().await;
    killing.abort();
    locks.shutdown().await;
}

#[tokio::test]
async fn tasks_whose_inbox_ended_are_queued_again_in_order() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = server.client();
    client.acquire("door alice 60000");
    let locks = Locks::open(proxy.url()).unwrap();
    let queue = Queue::of(&locks, &mut client, 50).await;
    proxy.refuse(true);
    proxy.cut();
    until("the end of the inbox", || client.waiting("door") == 0).await;
    proxy.refuse(false);
    until("a place for each", || client.waiting("door") == 50).await;
    client.release("door alice");
    queue.serve_in_order().await;
}

#[tokio::test]
async fn tasks_wait_on_at_a_server_that_was_restarted() {
    let (mut server, mut client) = start();
    client.acquire("door alice 60000");
    let locks = locks(&server);
    let queue = Queue::of(&locks, &mut client, 20).await;
    server.kill();
    server.start_again();
    queue.serve_in_order().await;
}

#[tokio::test]
async fn grants_whose_replies_are_cut_anywhere_are_held_by_somebody() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut client = server.client();
    let locks = Locks::open(proxy.url()).unwrap();
    for bytes in (0..400).step_by(7) {
        client.acquire("door alice 60000");
        let queue = Queue::of(&locks, &mut client, 5).await;
        proxy.cut_after(Way::ToClient, bytes);
        client.release("door alice");
        queue.serve_in_order().await;
        until_free(&mut client, "door").await;
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
    let mut waiting = JoinSet::new();
    let keys: Vec<String> = (0..3).map(|node| cluster.key_on(node, "door")).collect();
    for (node, key) in keys.iter().enumerate() {
        let mut client = cluster.client(node);
        client.acquire(&format!("{key} alice 60000"));
        for _ in 0..10 {
            let lock = locks.lock(key);
            waiting.spawn(async move { lock.acquire().await.map(drop) });
        }
        until("a place for each", || client.waiting(key) == 10).await;
        let connected: i64 = client.server_number("clients", "connected_clients");
        assert!(connected < 20, "{connected}");
    }
    for (node, key) in keys.iter().enumerate() {
        cluster.client(node).release(&format!("{key} alice"));
    }
    while let Some(served) = soon("a turn", waiting.join_next()).await {
        served.unwrap().unwrap();
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
