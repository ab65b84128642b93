//! Waiting requests share a budget of connections, and renewals come first.

use std::sync::{Arc, Mutex};

use dlock_testkit::{Client, start, start_with};
use redis_dlock_client::{Error, Guard, Locks, Settings};
use tokio::task::JoinSet;

use crate::support::{locks, ms, soon, until, url};

fn connected_clients(client: &mut Client) -> usize {
    client.server_number("clients", "connected_clients")
}

#[tokio::test]
async fn waiters_of_one_lock_share_connections_and_are_granted_in_order() {
    const WAITERS: usize = 500;
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let locks = locks(&server);
    let granted = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for n in 0..WAITERS {
        let (locks, granted) = (locks.clone(), Arc::clone(&granted));
        tasks.spawn(async move {
            let guard = locks.acquire("door").await.unwrap();
            granted.lock().unwrap().push(n);
            guard.release().await.unwrap();
        });
        // The first ones arrive at the server one after the other.
        if n < 16 {
            until("a place in the queue", || client.waiting("door") == n as i64 + 1).await;
        }
    }
    tokio::time::sleep(ms(200)).await;
    assert_eq!(client.waiting("door"), 16);
    assert!(connected_clients(&mut client) <= 16 + 3);
    client.release("door alice");
    soon("all waiters", async {
        while tasks.join_next().await.is_some() {}
    })
    .await;
    let granted = granted.lock().unwrap();
    assert_eq!(granted.len(), WAITERS);
    // Those whose turn comes at the same moment may overtake each other on their connections.
    let displaced = granted.iter().enumerate().filter(|&(at, n)| at.abs_diff(*n) > 16);
    assert_eq!(displaced.count(), 0, "{granted:?}");
}

#[tokio::test]
async fn renewals_get_a_connection_when_waiters_occupy_all_that_the_server_allows() {
    let (server, mut client) = start_with("maxclients 24");
    let settings = Settings::default().max_waiting(100, 16);
    let locks = Locks::with(url(&server), settings).unwrap();
    let mut guards = Vec::new();
    for key in ["one", "two"] {
        guards.push(locks.lock(key).lease(ms(4000)).acquire().await.unwrap());
    }
    let mut tasks = JoinSet::new();
    for n in 0..40 {
        client.acquire(&format!("busy{n} alice 60000"));
        let lock = locks.lock(format!("busy{n}"));
        tasks.spawn(async move { lock.acquire().await.map(drop) });
    }
    until("a full server", || connected_clients(&mut client) >= 23).await;
    let killed: i64 = client.ask("CLIENT KILL TYPE normal SKIPME yes");
    assert!(killed >= 20);
    tokio::time::sleep(ms(9000)).await;
    assert!(guards.iter().all(Guard::is_held), "{guards:?}");
    tasks.shutdown().await;
}

#[tokio::test]
async fn waiter_without_a_connection_acquires_a_free_lock() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    client.acquire("gate alice 60000");
    let locks = Locks::with(url(&server), Settings::default().max_waiting(1, 1)).unwrap();
    let waiting = |key: &str| {
        let lock = locks.lock(key);
        tokio::spawn(async move { lock.acquire().await })
    };
    let _first = waiting("door");
    until("a place in the queue", || client.waiting("door") == 1).await;
    let second = waiting("gate");
    tokio::time::sleep(ms(100)).await;
    assert_eq!(client.waiting("gate"), 0, "there is one connection for all");
    client.release("gate alice");
    drop(soon("the lock", second).await.unwrap().unwrap());
}

#[tokio::test]
async fn locally_queued_waiter_times_out_and_leaves_nothing() {
    let (server, mut client) = start();
    client.acquire("door alice 60000");
    let locks = Locks::with(url(&server), Settings::default().max_waiting(1, 1)).unwrap();
    let first = tokio::spawn({
        let lock = locks.lock("door");
        async move { lock.acquire().await }
    });
    until("a place in the queue", || client.waiting("door") == 1).await;
    let error = locks.lock("door").wait(ms(200)).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    client.release("door alice");
    drop(soon("the lock", first).await.unwrap().unwrap());
    soon("the release", locks.settle()).await;
    assert!(client.find_lock("door").is_none());
}

#[tokio::test]
async fn idle_waiting_connections_are_closed() {
    let (server, mut client) = start();
    let locks = locks(&server);
    client.acquire("door alice 60000");
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let lock = locks.lock("door").shared();
        tasks.spawn(async move { lock.acquire().await.map(drop) });
    }
    until("a queue", || client.waiting("door") == 10).await;
    client.release("door alice");
    while tasks.join_next().await.is_some() {}
    assert!(connected_clients(&mut client) >= 10);
    until("the connections to be closed", || {
        connected_clients(&mut client) <= 3
    })
    .await;
}
