//! One of the locks of `make bench-peers`, in Rust: `dlock-bench-peer LOCK WORKERS SECTION_MS SECONDS PORT...`, as
//! `bench/peers/run` describes.
//!
//! Defaults: those of the DLOCK client, of its counterpart over several servers, and of rslock, whose `acquire` tries
//! until it has the lock, after random pauses of up to 200 ms. Its lease has no default: 30 s, as DLOCK's. So none
//! gives up.

use std::env;
use std::fmt::Write;
use std::time::{Duration, Instant};

use redis_dlock_client as client;
use redis_dlock_quorum as quorum;
use rslock::LockManager;
use tokio::task::{JoinSet, block_in_place};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const LEASE: Duration = Duration::from_secs(30);

#[derive(Clone)]
enum Contender {
    Dlock(client::Locks),
    Quorum(quorum::Locks),
    Rslock(LockManager),
}

enum Held {
    Dlock(client::Guard),
    Quorum(quorum::Guard),
    Rslock(rslock::LockGuard),
}

impl Contender {
    fn open(name: &str, ports: &[String]) -> Result<Self> {
        let urls: Vec<_> = ports
            .iter()
            .map(|port| format!("redis://127.0.0.1:{port}"))
            .collect();
        match (name, urls.as_slice()) {
            ("dlock", [url]) => Ok(Self::Dlock(client::Locks::open(url.as_str())?)),
            ("dlock", urls) => Ok(Self::Quorum(quorum::Locks::open(
                urls.iter().map(String::as_str),
            )?)),
            ("rslock", _) => Ok(Self::Rslock(LockManager::new(urls))),
            _ => Err("the lock is dlock or rslock".into()),
        }
    }

    async fn acquire(&self) -> Result<Held> {
        Ok(match self {
            Self::Dlock(locks) => Held::Dlock(locks.acquire("peer").await?),
            Self::Quorum(locks) => Held::Quorum(locks.acquire("peer").await?),
            Self::Rslock(manager) => Held::Rslock(manager.acquire(b"peer-rslock", LEASE).await?),
        })
    }
}

impl Held {
    async fn release(self) -> Result<()> {
        match self {
            Self::Dlock(guard) => guard.release().await?,
            Self::Quorum(guard) => guard.release().await?,
            Self::Rslock(guard) => guard.release().await,
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [name, workers, section_ms, seconds, ports @ ..] = args.as_slice() else {
        return Err("usage: dlock-bench-peer dlock|rslock WORKERS SECTION_MS SECONDS PORT...".into());
    };
    let contender = Contender::open(name, ports)?;
    let section = Duration::from_millis(section_ms.parse()?);
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds.parse()?);
    let mut tasks = JoinSet::new();
    for _ in 0..workers.parse()? {
        tasks.spawn(work(contender.clone(), section, start, end));
    }
    while let Some(ended) = tasks.join_next().await {
        print!("{}", ended??);
    }
    Ok(())
}

/// The lines of a worker.
async fn work(contender: Contender, section: Duration, start: Instant, end: Instant) -> Result<String> {
    let ms = |at: Instant| at.duration_since(start).as_secs_f64() * 1e3;
    let mut lines = String::new();
    let mut began = start;
    while began < end {
        let held = contender.acquire().await?;
        writeln!(lines, "{} {}", ms(began), ms(Instant::now()))?;
        if !section.is_zero() {
            block_in_place(|| std::thread::sleep(section));
        }
        held.release().await?;
        began = Instant::now();
    }
    Ok(lines)
}
