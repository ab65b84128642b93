//! Ten thousand tasks, and a hundred runtimes.

use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::thread;

use crate::support::{Journal, locks, runtime, soon, until};
use dlock_testkit::{Client, start, start_with};
use redis_dlock_client::Locks;
use tokio::task::JoinSet;

/// Those of the locks, without the one that asks.
fn connections(client: &mut Client) -> usize {
    let list: String = client.ask("CLIENT LIST TYPE normal");
    list.lines().count() - 1
}

#[tokio::test]
async fn ten_thousand_tasks_wait_on_three_connections_and_are_granted_in_order_of_arrival() {
    const KEYS: usize = 100;
    const WAITERS: usize = 10_000;
    let (server, mut client) = start_with("dlock.max-waiters-per-lock 1000");
    let keys: Vec<String> = (0..KEYS).map(|key| format!("door{key}")).collect();
    for key in &keys {
        client.acquire(&format!("{key} alice 600000"));
    }
    let locks = locks(&server);
    let granted = Arc::new(Mutex::new(vec![Vec::new(); KEYS]));
    let mut tasks = JoinSet::new();
    for n in 0..WAITERS {
        let (lock, granted) = (locks.lock(&keys[n % KEYS]), Arc::clone(&granted));
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            granted.lock().unwrap()[n % KEYS].push(n);
            guard.release().await.unwrap();
        });
    }
    let waiting = |client: &mut Client| keys.iter().map(|key| client.waiting(key)).sum::<i64>();
    until("all to wait", || waiting(&mut client) == WAITERS as i64).await;
    // For requests, for answers, and in the background, when something is held.
    assert!(connections(&mut client) <= 3);
    for key in &keys {
        client.release(&format!("{key} alice"));
    }
    while let Some(done) = soon("a turn", tasks.join_next()).await {
        done.unwrap();
    }
    assert_eq!(connections(&mut client), 3);
    assert_eq!(client.ask::<u64>("DBSIZE"), 0);
    for granted in granted.lock().unwrap().iter() {
        assert_eq!(granted.len(), WAITERS / KEYS);
        assert!(granted.is_sorted(), "{granted:?}");
    }
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

#[test]
fn static_locks_serve_many_short_runtimes() {
    const ROUNDS: usize = 5;
    static URL: OnceLock<String> = OnceLock::new();
    static JOURNAL: LazyLock<Journal> = LazyLock::new(Journal::default);
    static LOCKS: LazyLock<Locks> =
        LazyLock::new(|| Locks::with(URL.get().unwrap(), JOURNAL.settings()).unwrap());
    let (server, mut client) = start();
    URL.set(server.url()).unwrap();
    let threads: Vec<_> = (0..100)
        .map(|n| {
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    let runtime = runtime();
                    // Its own lock, a contended one, and one that is dropped with its runtime.
                    let left = runtime.block_on(async {
                        let own = LOCKS.acquire(format!("own{n}")).await.unwrap();
                        LOCKS.acquire("common").await.unwrap().release().await.unwrap();
                        own.release().await.unwrap();
                        LOCKS.acquire(format!("left{n}:{round}")).await.unwrap()
                    });
                    drop(runtime);
                    assert!(left.is_held());
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let runtime = runtime();
    runtime.block_on(soon("the releases", LOCKS.shutdown()));
    assert_eq!(JOURNAL.count("Unconfirmed") + JOURNAL.count("Lost"), 0);
    assert_eq!(JOURNAL.count("NotAcquired"), 0);
    assert_eq!(JOURNAL.count("Released"), 100 * ROUNDS * 3);
    assert_eq!(client.ask::<u64>("DBSIZE"), 0);
}
