//! A service in three processes, whose connections and processes fail: no lock is held twice, and all are free in the end.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime};

use dlock_testkit::{Proxy, Server, Way};
use redis_dlock_client::{Guard, Lock, Locks};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::{ms, until};

/// Set in the processes of the service: the address of the server.
const ADDRESS: &str = "DLOCK_TEST_STRESS_ADDRESS";
const TASKS: usize = 12;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const LASTS: Duration = Duration::from_secs(6);

/// A time in which a process was certain that it held a lock, in microseconds.
#[derive(Debug)]
struct Interval {
    fence: u64,
    from: u128,
    to: u128,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_failing_processes_are_held_once_and_free_in_the_end() {
    if let Ok(address) = env::var(ADDRESS) {
        return serve(&address).await;
    }
    let server = Server::start();
    let mut client = server.client();
    let proxies: Vec<Proxy> = (0..3).map(|_| Proxy::to(server.port())).collect();
    let folder = TempDir::new().unwrap();
    let log = |n: usize| folder.path().join(n.to_string());
    let mut services: Vec<Child> = (0..3).map(|n| start(&proxies[n], log(n))).collect();
    let begun = Instant::now();
    let mut is_killed = false;
    while begun.elapsed() < LASTS - ms(1500) {
        let proxy = &proxies[rand::random_range(0..3)];
        match rand::random_range(0..3) {
            0 => proxy.cut(),
            1 => proxy.freeze(Way::ToServer),
            _ => proxy.freeze(Way::ToClient),
        }
        sleep(ms(rand::random_range(50..300))).await;
        proxy.thaw();
        if !is_killed && begun.elapsed() > LASTS / 3 {
            is_killed = true;
            services[0].kill().unwrap();
            services.push(start(&proxies[0], log(3)));
        }
    }
    for (n, service) in services.iter_mut().enumerate() {
        let status = service.wait().unwrap();
        assert!(status.success() || n == 0, "{n}: {status}");
    }
    // Those of the killed process end with their leases.
    until("all locks to be free", || client.ask::<usize>("DBSIZE") == 0).await;
    assert_eq!(KEYS.map(|key| client.waiting(key)), [0; 4]);
    let logs: Vec<String> = (0..4).map(|n| fs::read_to_string(log(n)).unwrap()).collect();
    check(logs.iter().flat_map(|log| log.lines()).filter_map(parse));
}

/// Starts a process of the service: this test, with an address.
fn start(proxy: &Proxy, log: impl AsRef<std::path::Path>) -> Child {
    let test = "stress::locks_of_failing_processes_are_held_once_and_free_in_the_end";
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ADDRESS, proxy.url())
        .stdout(File::create(log).unwrap())
        .spawn()
        .unwrap()
}

async fn serve(address: &str) {
    let locks = Locks::open(address).unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let locks = locks.clone();
        tasks.spawn(async move {
            loop {
                request(&locks).await;
            }
        });
    }
    sleep(LASTS).await;
    tasks.shutdown().await;
    timeout(Duration::from_secs(10), locks.shutdown()).await.unwrap();
}

/// One request of the service, in one of the ways in which applications use locks.
async fn request(locks: &Locks) {
    let keys = KEYS.map(|key| locks.lock(key).lease(ms(1500)).timeout(ms(500)));
    let pick = || keys[rand::random_range(0..KEYS.len())].clone();
    match rand::random_range(0..5) {
        0 => _ = pick().run(work).await,
        1 => use_lock(pick()).await,
        2 => _ = timeout(ms(rand::random_range(0..20)), use_lock(pick())).await,
        3 => _ = pick().timeout(ms(3)).acquire().await.map(drop),
        _ => {
            let [one, other, ..] = keys;
            if let Ok(_outer) = one.acquire().await {
                _ = other.run(work).await;
            }
        }
    }
}

async fn use_lock(lock: Lock) {
    if let Ok(guard) = lock.acquire().await {
        work(&guard).await;
        _ = guard.release().await;
    }
}

async fn work(guard: &Guard) {
    let from = now();
    sleep(ms(rand::random_range(0..4))).await;
    let to = now();
    if guard.is_held() {
        let key = String::from_utf8_lossy(guard.key());
        println!("held {key} {} {from} {to} .", guard.fence());
    }
}

fn now() -> u128 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_micros()
}

/// A line that was written whole: the killed process may have begun another one.
fn parse(line: &str) -> Option<(String, Interval)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let ["held", key, fence, from, to, "."] = fields[..] else {
        return None;
    };
    let interval = Interval {
        fence: fence.parse().unwrap(),
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
    };
    Some((key.to_owned(), interval))
}

fn check(intervals: impl Iterator<Item = (String, Interval)>) {
    let mut by_key: BTreeMap<String, Vec<Interval>> = BTreeMap::new();
    for (key, interval) in intervals {
        by_key.entry(key).or_default().push(interval);
    }
    for (key, mut intervals) in by_key {
        intervals.sort_by_key(|interval| interval.from);
        for pair in intervals.windows(2) {
            assert!(pair[0].to <= pair[1].from, "{key} was held twice: {pair:?}");
            assert!(pair[0].fence < pair[1].fence, "a fence of {key} fell: {pair:?}");
        }
        assert!(intervals.len() > 20, "{key}: only {} intervals", intervals.len());
    }
}
