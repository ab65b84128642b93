//! What a guard costs beside the bare commands: `cargo bench -p redis-dlock-client --bench cost`.
//!
//! Needs the module built for release, and finds it by `DLOCK_MODULE`.

use std::time::{Duration, Instant};

use dlock_testkit::Server;
use redis::aio::MultiplexedConnection;
use redis_dlock_client::{Acquire, AsyncLockCommands, Grant, Locks, Owner, Release};
use tokio::runtime::{Builder, Runtime};

const LEASE: Duration = Duration::from_secs(30);
const ROUNDS: usize = 9;
const PAIRS: usize = 4_000;
const TASKS: usize = 64;
const HAND_OVERS: usize = 2_000;

/// The median of some measurements, and how far they are apart.
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self {
            median: values[values.len() / 2],
            least: values[0],
            most: values[values.len() - 1],
        }
    }
}

fn main() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    for (name, runtime) in [
        ("one thread", Builder::new_current_thread().enable_all().build()),
        (
            "two threads",
            Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        ),
    ] {
        let runtime = runtime.expect("a runtime can be made");
        println!("{name}");
        compare(&runtime, &url, 1, "us a pair, one after the other");
        compare(&runtime, &url, TASKS, "us a pair, 64 tasks at once");
        hand_over(&runtime, &url);
    }
}

/// Bare commands and guards in turns, so that both meet the same weather.
fn compare(runtime: &Runtime, url: &str, tasks: usize, unit: &str) {
    let (mut bare, mut guarded) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(runtime.block_on(bare_pairs(url, tasks)));
        guarded.push(runtime.block_on(guarded_pairs(url, tasks)));
    }
    let (bare, guarded) = (Spread::of(bare), Spread::of(guarded));
    for (what, spread) in [("two commands", &bare), ("guard", &guarded)] {
        println!(
            "  {what:14} {:8.2} {unit} ({:.2} to {:.2})",
            spread.median, spread.least, spread.most
        );
    }
    println!("  {:14} {:8.3}", "ratio", guarded.median / bare.median);
}

/// Two commands of redis-rs on a connection that the tasks share: microseconds a pair.
async fn bare_pairs(url: &str, tasks: usize) -> f64 {
    let info: redis::ConnectionInfo = url.parse().expect("the address is well formed");
    let settings = redis::io::tcp::TcpSettings::default().set_nodelay(true);
    let client = redis::Client::open(info.set_tcp_settings(settings)).expect("the address is well formed");
    let connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("the server is there");
    each(tasks, |n| {
        let mut connection = connection.clone();
        async move {
            let key = format!("lock{n}");
            for _ in 0..PAIRS / tasks {
                bare_pair(&mut connection, &key).await;
            }
        }
    })
    .await
}

async fn bare_pair(connection: &mut MultiplexedConnection, key: &str) {
    let owner = Owner::unique();
    let id = owner.to_string();
    let request = Acquire::new(key, &owner, LEASE).request_id(&id[id.len() - 32..]);
    let grant: Grant = connection
        .dlock_acquire(request)
        .await
        .expect("the server answers")
        .expect("it is free");
    let request = Release::new(key, &owner)
        .fence(grant.fence)
        .request_id(&id[id.len() - 32..]);
    connection.dlock_release(request).await.expect("it is held");
}

async fn guarded_pairs(url: &str, tasks: usize) -> f64 {
    let locks = Locks::open(url).expect("the address is well formed");
    locks
        .acquire("warm-up")
        .await
        .expect("it is free")
        .release()
        .await
        .expect("it is held");
    each(tasks, |n| {
        let lock = locks.lock(format!("lock{n}")).lease(LEASE);
        async move {
            for _ in 0..PAIRS / tasks {
                lock.acquire()
                    .await
                    .expect("it is free")
                    .release()
                    .await
                    .expect("it is held");
            }
        }
    })
    .await
}

/// Runs so many tasks: microseconds for each of all their pairs.
async fn each<F: Future<Output = ()> + Send + 'static>(tasks: usize, work: impl Fn(usize) -> F) -> f64 {
    let start = Instant::now();
    let tasks: Vec<_> = (0..tasks).map(|n| tokio::spawn(work(n))).collect();
    for task in tasks {
        task.await.expect("the work is done");
    }
    start.elapsed().as_secs_f64() * 1e6 / PAIRS as f64
}

/// From the moment that one task begins to release to the moment that the one which waits has the lock.
fn hand_over(runtime: &Runtime, url: &str) {
    let bare = Spread::of(runtime.block_on(bare_hand_overs(url)));
    let guarded = Spread::of(runtime.block_on(guarded_hand_overs(url)));
    for (what, spread) in [("two commands", &bare), ("guard", &guarded)] {
        println!("  {what:14} {:8.1} us a hand-over", spread.median);
    }
    println!("  {:14} {:8.1} us", "added", guarded.median - bare.median);
}

async fn bare_hand_overs(url: &str) -> Vec<f64> {
    let client = redis::Client::open(url).expect("the address is well formed");
    let mut holder = client
        .get_multiplexed_async_connection()
        .await
        .expect("the server is there");
    let waiter = client
        .get_multiplexed_async_connection()
        .await
        .expect("the server is there");
    let mut took = Vec::new();
    for _ in 0..HAND_OVERS {
        let (mine, its) = (Owner::unique(), Owner::unique());
        holder
            .dlock_acquire(Acquire::new("door", &mine, LEASE))
            .await
            .expect("an answer");
        let waiting = tokio::spawn({
            let (mut waiter, its) = (waiter.clone(), its.clone());
            async move {
                let request = Acquire::new("door", &its, LEASE).block_without_limit();
                waiter
                    .dlock_acquire(request)
                    .await
                    .expect("an answer")
                    .expect("the lock");
                Instant::now()
            }
        });
        while holder
            .dlock_info("door")
            .await
            .expect("an answer")
            .is_none_or(|info| info.waiting == 0)
        {}
        let start = Instant::now();
        holder
            .dlock_release(Release::new("door", &mine))
            .await
            .expect("it is held");
        let granted = waiting.await.expect("the lock");
        took.push((granted - start).as_secs_f64() * 1e6);
        holder
            .dlock_release(Release::new("door", &its))
            .await
            .expect("it is held");
    }
    took
}

async fn guarded_hand_overs(url: &str) -> Vec<f64> {
    let locks = Locks::open(url).expect("the address is well formed");
    let lock = locks.lock("door").lease(LEASE);
    let mut took = Vec::new();
    for _ in 0..HAND_OVERS {
        let guard = lock.acquire().await.expect("it is free");
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move {
                let guard = lock.acquire().await.expect("the lock");
                (Instant::now(), guard)
            }
        });
        while lock
            .inspect()
            .await
            .expect("an answer")
            .is_none_or(|info| info.waiting == 0)
        {}
        let start = Instant::now();
        guard.release().await.expect("it is held");
        let (granted, guard) = waiting.await.expect("the lock");
        took.push((granted - start).as_secs_f64() * 1e6);
        guard.release().await.expect("it is held");
    }
    took
}
