//! One of the locks of `make bench-peers`, in Rust: `dlock-bench-peer LOCK PORT WORKERS SECTION_MS SECONDS`.

use std::env;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis_dlock_client::Locks;
use rslock::LockManager;
use tokio::task::{JoinSet, block_in_place};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const LEASE: Duration = Duration::from_secs(30);
const WARM_UP: Duration = Duration::from_secs(1);

#[derive(Clone)]
enum Contender {
    Dlock(Locks),
    Rslock(LockManager),
}

/// The waits of all workers, and how often a library gave up.
#[derive(Default)]
struct Outcome {
    waits: Vec<Duration>,
    failed: usize,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [name, port, workers, section_ms, seconds] = args.as_slice() else {
        return Err("usage: dlock-bench-peer dlock|rslock PORT WORKERS SECTION_MS SECONDS".into());
    };
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let contender = match name.as_str() {
        "dlock" => Contender::Dlock(Locks::open(client.clone())?),
        "rslock" => Contender::Rslock(LockManager::from_clients(vec![client.clone()])),
        _ => return Err("the lock is dlock or rslock".into()),
    };
    let (section, counted) = (
        Duration::from_millis(section_ms.parse()?),
        Instant::now() + WARM_UP,
    );
    let end = counted + Duration::from_secs(seconds.parse()?);
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let mut tasks = JoinSet::new();
    for _ in 0..workers.parse()? {
        tasks.spawn(work(
            contender.clone(),
            section,
            counted..end,
            Arc::clone(&outcome),
        ));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    print(&outcome, counted.elapsed(), connections(&client)?)
}

async fn work(
    contender: Contender,
    section: Duration,
    counted: Range<Instant>,
    outcome: Arc<Mutex<Outcome>>,
) -> Result<()> {
    let hold = |began: Instant| {
        if began >= counted.start {
            outcome.lock().expect("no panic").waits.push(began.elapsed());
        }
        if !section.is_zero() {
            block_in_place(|| std::thread::sleep(section));
        }
    };
    let mut began = Instant::now();
    while began < counted.end {
        match &contender {
            Contender::Dlock(locks) => {
                let guard = locks.lock("peer").lease(LEASE).acquire().await?;
                hold(began);
                guard.release().await?;
            }
            Contender::Rslock(manager) => match manager.acquire_no_guard(b"peer-rslock", LEASE).await {
                Ok(lock) => {
                    hold(began);
                    manager.unlock(&lock).await;
                }
                Err(_) => {
                    outcome.lock().expect("no panic").failed += 1;
                    continue;
                }
            },
        }
        began = Instant::now();
    }
    Ok(())
}

fn connections(client: &redis::Client) -> Result<u64> {
    let info: redis::InfoDict = redis::cmd("INFO")
        .arg("clients")
        .query(&mut client.get_connection()?)?;
    // Without the one that asks.
    Ok(info.get::<u64>("connected_clients").unwrap_or(1) - 1)
}

fn print(outcome: &Mutex<Outcome>, elapsed: Duration, connections: u64) -> Result<()> {
    let mut outcome = outcome.lock().expect("no panic");
    outcome.waits.sort();
    let waits = &outcome.waits;
    let ms = |wait: Option<&Duration>| wait.map_or(0.0, |wait| wait.as_secs_f64() * 1e3);
    println!(
        r#"{{"per_s":{:.0},"p99_ms":{:.1},"longest_ms":{:.1},"failed":{},"connections":{connections}}}"#,
        waits.len() as f64 / elapsed.as_secs_f64(),
        ms(waits.get(waits.len() * 99 / 100)),
        ms(waits.last()),
        outcome.failed,
    );
    Ok(())
}
