//! Callers in any runtime, in several, in one that nobody drives, and in none.

use std::pin::pin;
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use dlock_testkit::{Proxy, SLOW_MACHINE, Server, start, wait_for};
use redis_dlock_client::{Error, Locks, Lost, Settings};
use tokio::runtime::Builder;

use crate::support::{Journal, locks, ms, runtime, soon};

/// The `block_on` of an executor that knows nothing of tokio.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// Polls once, as a task that is dropped, or not polled again for a while.
fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// All that locks and guards do.
async fn use_everything(server: &Server, locks: &Locks) {
    let guard = locks.lock("door").acquire().await.unwrap();
    assert!(locks.lock("door").try_acquire().await.unwrap().is_none());
    let waits = locks.lock("door").timeout(ms(300)).acquire().await;
    assert!(
        matches!(waits, Err(Error::Timeout { last: None, .. })),
        "{waits:?}"
    );
    guard.extend(ms(60_000)).await.unwrap();
    guard
        .query::<()>(&redis_dlock_client::redis::Cmd::set("data", 1))
        .await
        .unwrap();
    assert_eq!(locks.lock("door").info().await.unwrap().unwrap().holders.len(), 1);
    let mut next = pin!(locks.acquire("door"));
    let waiting = std::future::poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_pending()));
    assert!(waiting.await);
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    drop(locks.acquire("door").await.unwrap());
    locks.ping().await.unwrap();
    locks.shutdown().await;
    assert!(server.client().find_lock("door").is_none());
}

#[test]
fn locks_work_without_tokio() {
    let server = Server::start();
    block_on(use_everything(&server, &locks(&server)));
}

#[test]
fn locks_that_share_a_background_work() {
    let server = Server::start();
    let background = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let settings = || Settings::default().background(background.handle().clone());
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    let many: Vec<Locks> = (0..20)
        .map(|_| Locks::with(server.url(), settings()).unwrap())
        .collect();
    // Other tests start and end threads, but not that many.
    assert!(threads() < before + 20);
    block_on(use_everything(&server, &many[0]));
    runtime().block_on(use_everything(&server, &many[1]));
    background.block_on(use_everything(&server, &many[2]));
}

#[test]
fn runtime_of_the_background_that_ends_is_reported_to_all() {
    let (server, mut client) = start();
    let background = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let settings = Settings::default().background(background.handle().clone());
    let locks = Locks::with(server.url(), settings).unwrap();
    client.acquire("taken somebody 600000");
    let runtime = runtime();
    let guard = runtime.block_on(locks.acquire("door")).unwrap();
    let waiting = runtime.spawn({
        let lock = locks.lock("taken");
        async move { lock.acquire().await }
    });
    runtime.block_on(async {
        while client.server_number::<u64>("dlock", "dlock_waiters") == 0 {
            tokio::time::sleep(ms(10)).await;
        }
    });
    background.shutdown_background();
    runtime.block_on(async {
        assert_eq!(guard.lost().await, Lost::LeaseExpired);
        assert!(matches!(waiting.await.unwrap(), Err(Error::Invalid(_))));
        assert!(matches!(locks.acquire("window").await, Err(Error::Invalid(_))));
    });
    assert!(client.find_lock("window").is_none());
}

#[test]
fn guard_dropped_after_its_block_on_is_released_without_a_new_connection() {
    let (server, mut client) = start();
    let (runtime, locks) = (runtime(), locks(&server));
    let guard = runtime.block_on(locks.acquire("door")).unwrap();
    wait_for("the connection of the background", || {
        client.server_number::<u64>("clients", "connected_clients") == 3
    });
    let before = client.server_number::<u64>("stats", "total_connections_received");
    let start = Instant::now();
    drop(guard);
    while client.find_lock("door").is_some() {
        assert!(start.elapsed() < SLOW_MACHINE);
    }
    assert_eq!(
        client.server_number::<u64>("stats", "total_connections_received"),
        before
    );
    drop(runtime);
}

#[test]
fn request_dropped_in_a_runtime_that_nobody_drives_leaves_no_lock() {
    let (server, mut client) = start();
    let proxy = Proxy::to(server.port());
    let (runtime, locks) = (runtime(), Locks::open(proxy.url()).unwrap());
    runtime.block_on(locks.ping()).unwrap();
    // Sent, perhaps not even written, when the runtime stops.
    for polls in 1..6 {
        let key = format!("door{polls}");
        runtime.block_on(async {
            let mut acquiring = pin!(locks.acquire(&key));
            for _ in 0..polls {
                if poll_once(acquiring.as_mut()).is_ready() {
                    break;
                }
                if polls > 1 {
                    tokio::task::yield_now().await;
                }
            }
        });
        block_on(locks.shutdown());
        thread::sleep(ms(700));
        assert!(client.find_lock(&key).is_none(), "after {polls} polls");
    }
    // What was left to be written is not sent later.
    runtime.block_on(async { tokio::time::sleep(ms(50)).await });
    assert_eq!(client.ask::<u64>("DBSIZE"), 0);
}

#[test]
fn waiting_future_that_moves_to_another_runtime_goes_on() {
    let (server, mut client) = start();
    let locks = locks(&server);
    client.acquire("door alice 60000");
    let mut acquiring = Box::pin(locks.acquire("door"));
    for _ in 0..3 {
        let runtime = runtime();
        let outcome = runtime.block_on(async { tokio::time::timeout(ms(50), &mut acquiring).await });
        assert!(outcome.is_err());
        // Its connections go with it.
        drop(runtime);
    }
    client.release("door alice");
    assert!(runtime().block_on(acquiring).unwrap().is_held());
}

#[test]
fn request_that_is_dropped_when_it_is_granted_without_tokio_leaves_no_lock() {
    let (server, mut client) = start();
    let journal = Journal::default();
    let locks = Locks::with(server.url(), journal.settings()).unwrap();
    block_on(locks.ping()).unwrap();
    client.acquire("door alice 60000");
    let mut acquiring = Box::pin(locks.acquire("door"));
    assert!(poll_once(acquiring.as_mut()).is_pending());
    wait_for("the request", || client.waiting("door") == 1);
    client.release("door alice");
    // The background has it; its caller does not look.
    wait_for("the grant", || journal.count("Acquired") == 1);
    thread::sleep(ms(50));
    drop(acquiring);
    wait_for("the release", || client.find_lock("door").is_none());
    wait_for("its end", || journal.count("Ended") == 1);
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
