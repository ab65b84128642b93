//! A thousand tasks, on one lock and on a thousand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{locks, soon, until};
use dlock_testkit::{Server, start};
use redis_dlock_client::Error;

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
    // One for requests, one for answers, and that of the test.
    let connections = client.server_number::<u64>("clients", "connected_clients");
    assert!(connections <= 3, "{connections}");
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
