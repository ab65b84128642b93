//! A lock that is taken and given back now and then, alone and beside tasks of the same runtime that wait for another one.

use std::time::{Duration, Instant};

use redis_dlock_client::Locks;
use tokio::task::JoinSet;

use super::runtime::runtime;
use crate::error::Result;
use crate::locks::LEASE;
use crate::results::{DLOCK, Results};
use crate::scale::Scale;
use crate::server::Server;

/// The settings: who takes and gives back a lock in turn.
const SETTINGS: [&str; 2] = ["alone", "beside 64 that wait"];
const WAITING: usize = 64;
const PAUSE: Duration = Duration::from_millis(5);
const TIMES: usize = 1_000;

pub fn measure(scale: Scale, results: &mut Results) -> Result<()> {
    for round in 0..scale.rounds(3) {
        let medians = runtime(1)?.block_on(medians_us(scale.count(TIMES)))?;
        for (setting, us) in SETTINGS.into_iter().zip(medians) {
            let mut row = results.round(setting, DLOCK, round);
            row.add("time of a lock", "us", us);
        }
    }
    Ok(())
}

/// How long it takes to acquire a lock and to give it back: with locks of which none is waited for, and with others.
async fn medians_us(times: usize) -> Result<[f64; 2]> {
    let server = Server::start()?;
    let mut somebody = server.connect()?;
    somebody.call(&["DLOCK.ACQUIRE", "held", "somebody", LEASE])?;
    let (alone, beside) = (Locks::open(server.url())?, Locks::open(server.url())?);
    let mut tasks = JoinSet::new();
    for _ in 0..WAITING {
        let lock = beside.lock("held");
        tasks.spawn(async move { lock.acquire().await });
    }
    while somebody.number("dlock", "dlock_waiters")? < WAITING as f64 {
        tokio::time::sleep(PAUSE).await;
    }
    let locks = [alone.lock("free"), beside.lock("free")];
    let mut took = [Vec::with_capacity(times), Vec::with_capacity(times)];
    for _ in 0..times {
        for (lock, took) in locks.iter().zip(&mut took) {
            tokio::time::sleep(PAUSE).await;
            let start = Instant::now();
            lock.acquire().await?.release().await?;
            took.push(start.elapsed());
        }
    }
    Ok(took.map(|mut took| {
        took.sort_unstable();
        took.get(times / 2)
            .map_or(0.0, |median| median.as_secs_f64() * 1e6)
    }))
}
