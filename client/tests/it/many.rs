//! A thousand tasks, on one lock and on a thousand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use crate::support::{Journal, locks, soon, until};
use dlock_testkit::{Client, Server, start, start_with};
use redis_dlock_client::{Error, Locks};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

const TASKS: u64 = 1000;

/// A counter that nothing protects but the lock.
#[derive(Default)]
struct Counter {
    value: AtomicU64,
    inside: AtomicU64,
    last_fence: AtomicU64,
}

impl Counter {
    async fn count(&self, fence: u64) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
        let is_expected = self.last_fence.swap(fence, Ordering::SeqCst) < fence;
        assert!(is_expected, "fences rise");
        let value = self.value.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.value.store(value + 1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Those of the locks, without the one that asks.
fn connections(client: &mut Client) -> usize {
    let list: String = client.ask("CLIENT LIST TYPE normal");
    list.lines().count() - 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_tasks_hold_one_lock_one_at_a_time() {
    let (server, mut client) = start();
    let lock = locks(&server).lock("door").timeout(Duration::from_secs(120));
    let counter = Arc::new(Counter::default());
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (lock, counter) = (lock.clone(), Arc::clone(&counter));
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                counter.count(guard.fence()).await;
                guard.release().await
            })
        })
        .collect();
    for task in tasks {
        let released = tokio::time::timeout(Duration::from_secs(120), task).await;
        let released = released.unwrap().unwrap();
        // On a busy machine the first reply may come too late.
        let is_expected = matches!(released, Ok(()) | Err(Error::Unconfirmed(_)));
        assert!(is_expected, "{released:?}");
    }
    assert_eq!(counter.value.load(Ordering::SeqCst), TASKS);
    assert!(client.find_lock("door").is_none());
    // One for requests, one for answers, that of the background, and that of the test.
    let connections = client.server_number::<u64>("clients", "connected_clients");
    assert!(connections <= 4, "{connections}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_tasks_hold_thousand_locks() {
    let (server, mut client) = start();
    let locks = locks(&server);
    let tasks: Vec<_> = (0..TASKS)
        .map(|n| {
            let lock = locks.lock(format!("door{n}"));
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(soon("a lock", task).await.unwrap());
    }
    assert_eq!(client.ask::<u64>("DBSIZE"), TASKS);
    assert!(guards.iter().all(redis_dlock_client::Guard::is_held));
    drop(guards);
    until("all to be free", || client.ask::<u64>("DBSIZE") == 0).await;
    // None of them waited, so one connection for all of them was enough.
    assert!(client.server_number::<u64>("stats", "total_connections_received") < 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_exclude_each_other() {
    let server = Server::start();
    let locks = locks(&server);
    let (readers, writers) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            let (readers, writers) = (Arc::clone(&readers), Arc::clone(&writers));
            let lock = locks.lock("book");
            tokio::spawn(async move {
                let (lock, mine) = if n % 5 == 0 {
                    (lock, &writers)
                } else {
                    (lock.shared(), &readers)
                };
                let guard = lock.acquire().await.unwrap();
                mine.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                let (reading, writing) = (readers.load(Ordering::SeqCst), writers.load(Ordering::SeqCst));
                let is_expected = writing == 0 || (writing == 1 && reading == 0);
                assert!(is_expected, "{reading} read, {writing} write");
                mine.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        soon("a turn", task).await.unwrap();
    }
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
                    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
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
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(soon("the releases", LOCKS.shutdown()));
    assert_eq!(JOURNAL.count("Unconfirmed") + JOURNAL.count("Lost"), 0);
    assert_eq!(JOURNAL.count("NotAcquired"), 0);
    assert_eq!(JOURNAL.count("Released"), 100 * ROUNDS * 3);
    assert_eq!(client.ask::<u64>("DBSIZE"), 0);
}
