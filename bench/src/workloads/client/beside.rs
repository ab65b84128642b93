//! A lock that is taken and given back now and then, alone and beside tasks of the same runtime that wait for another one.

use std::time::{Duration, Instant};

use redis_dlock_client::Locks;
use tokio::task::JoinSet;

use super::runtime::runtime;
use crate::error::Result;
use crate::locks::LEASE;
use crate::results::{DLOCK, Results};
use crate::scale::{Scale, turns};
use crate::server::Server;

/// The settings, and how many tasks wait.
const SETTINGS: [(&str, usize); 2] = [("alone", 0), ("beside 64 that wait", 64)];
const PAUSE: Duration = Duration::from_millis(5);
const TIMES: usize = 1_000;

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    let times = scale.count(TIMES);
    for (round, index) in turns(scale.rounds(3), SETTINGS.len()) {
        let (setting, waiting) = SETTINGS[index];
        let us = runtime(1)?.block_on(median_us(times, waiting))?;
        let mut row = results.round(setting, DLOCK, round);
        row.add("time of a lock", "us", us);
    }
    Ok(())
}

/// How long it takes to acquire the lock and to give it back.
async fn median_us(times: usize, waiting: usize) -> Result<f64> {
    let server = Server::start()?;
    let mut somebody = server.connect()?;
    somebody.call(&["DLOCK.ACQUIRE", "held", "somebody", LEASE])?;
    let (locks, mut tasks) = (Locks::open(server.url())?, JoinSet::new());
    for _ in 0..waiting {
        let lock = locks.lock("held");
        tasks.spawn(async move { lock.acquire().await });
    }
    while somebody.number("dlock", "dlock_waiters")? < waiting as f64 {
        tokio::time::sleep(PAUSE).await;
    }
    let lock = locks.lock("free");
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        tokio::time::sleep(PAUSE).await;
        let start = Instant::now();
        lock.acquire().await?.release().await?;
        took.push(start.elapsed());
    }
    took.sort_unstable();
    Ok(took[times / 2].as_secs_f64() * 1e6)
}
