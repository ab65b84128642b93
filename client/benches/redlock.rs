//! What a lock on five servers costs beside one command to the slowest of them:
//! `cargo bench -p redis-dlock-client --bench redlock`.
//!
//! Needs the module built for release, and finds it by `DLOCK_MODULE`.

use std::time::{Duration, Instant};

use dlock_testkit::{Proxy, Server, Way};
use redis_dlock_client::{Acquire, AsyncLockCommands, Owner, Release, redlock};
use tokio::runtime::Builder;

const SERVERS: usize = 5;
const LEASE: Duration = Duration::from_secs(30);
const TURNS: usize = 300;
/// One way to the slowest server and back; the others are a little nearer.
const SLOWEST: Duration = Duration::from_millis(2);

fn main() {
    let servers: Vec<Server> = (0..SERVERS).map(|_| Server::start()).collect();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    let near: Vec<String> = servers
        .iter()
        .map(|server| format!("redis://127.0.0.1:{}/", server.port()))
        .collect();
    println!("five servers on this machine, which has to do all their work");
    runtime.block_on(compare(&near));

    let proxies: Vec<Proxy> = servers.iter().map(|server| Proxy::to(server.port())).collect();
    for (n, proxy) in proxies.iter().enumerate() {
        proxy.delay(Way::ToClient, SLOWEST * (n as u32 + 6) / 10);
    }
    println!("five servers at a distance, the last one at {SLOWEST:?}");
    let far: Vec<String> = proxies.iter().map(Proxy::url).collect();
    runtime.block_on(compare(&far));
}

/// In turns, so that both meet the same weather. The last server is the slowest.
async fn compare(addresses: &[String]) {
    let locks = redlock::Locks::open(addresses.iter().map(String::as_str)).expect("the addresses are good");
    let slowest = redis::Client::open(addresses[SERVERS - 1].as_str()).expect("the address is good");
    let mut slowest = slowest
        .get_multiplexed_async_connection()
        .await
        .expect("the server is there");
    let (mut acquire, mut release) = (Samples::default(), Samples::default());
    for turn in 0..TURNS {
        let (key, owner) = (format!("bare{turn}"), Owner::unique());
        let start = Instant::now();
        let grant = slowest.dlock_acquire(Acquire::new(&key, &owner, LEASE)).await;
        acquire.bare.push(start.elapsed());
        let fence = grant
            .expect("the server answers")
            .expect("the lock is free")
            .fence;
        let start = Instant::now();
        slowest
            .dlock_release(Release::new(&key, &owner).fence(fence))
            .await
            .expect("the lock is held");
        release.bare.push(start.elapsed());

        let lock = locks.lock(format!("majority{turn}"));
        let start = Instant::now();
        let guard = lock.acquire().await.expect("the lock is free");
        acquire.majority.push(start.elapsed());
        let start = Instant::now();
        guard.release().await.expect("the lock is held");
        release.majority.push(start.elapsed());
    }
    acquire.show("acquire");
    release.show("release");
}

#[derive(Default)]
struct Samples {
    bare: Vec<Duration>,
    majority: Vec<Duration>,
}

impl Samples {
    fn show(&mut self, what: &str) {
        for (name, part) in [("median", 50), ("90 of 100", 90)] {
            let bare = quantile(&mut self.bare, part);
            let majority = quantile(&mut self.majority, part);
            let times = majority.as_secs_f64() / bare.as_secs_f64();
            println!(
                "  {what}, {name}: {majority:?} for a majority, {bare:?} for the slowest alone: {times:.2} times"
            );
        }
    }
}

fn quantile(values: &mut [Duration], part: usize) -> Duration {
    values.sort_unstable();
    values[values.len() * part / 100]
}
