//! Many waiters that are answered at once, or that have nothing to wait for but time: what others notice of it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::crowd::{Case, Crowd, WAITERS, encode_request, key, ping};
use crate::error::Result;
use crate::locks::{BATCH, LEASE};
use crate::machine::MainThread;
use crate::results::{DLOCK, Results};
use crate::scale::Scale;
use crate::server::Server;
use crate::wire::encode;

/// For one lock: the default of `dlock.max-waiters-per-lock`, and of `dlock.max-holders`.
const CROWD: usize = 10_000;
/// Between the last request and the time-out of all.
const MARGIN: Duration = Duration::from_secs(1);
/// What a client can have under way that does not wait for replies.
const PIPELINED: usize = 200;
/// Holds with an id that an owner may have, and so its waiting requests.
const REQUESTS_OF_OWNER: usize = 64;

const CONTENDED: usize = 300_000;
const CONTENDED_LOCKS: &str = "300 000 contended locks of a cluster";
const NO_LOCKS: &str = "no locks, of a cluster";
/// The server's cron runs several times in it.
const SHORTEST_WINDOW: Duration = Duration::from_secs(1);
const PING_INTERVAL: Duration = Duration::from_millis(1);

pub const CASES: [Case; 5] = [
    ("100 000 waiters of a lock time out", |scale| time_out(scale, 1)),
    ("100 000 waiters of 10 locks time out", |scale| {
        time_out(scale, WAITERS / CROWD)
    }),
    ("100 000 waiters of 10 locks are granted them", grant),
    ("200 repeated requests of an owner with 64", repeat),
    ("request for a lock with 10 000 holders and waiters", of_crowd),
];

impl Crowd {
    /// The percentage of a core that the server uses while nobody asks it anything, and with a PING every millisecond;
    /// and the most that it works during one of them, in milliseconds.
    fn usage(&mut self, window: Duration) -> Result<([f64; 2], f64)> {
        let pid = self.server.pid();
        let idle = MainThread::of(pid)?.usage_during(|| {
            sleep(window);
            Ok(())
        })?;
        let (mut thread, mut worst) = (MainThread::of(pid)?, 0.0_f64);
        let pinged = MainThread::of(pid)?.usage_during(|| {
            let start = Instant::now();
            while start.elapsed() < window {
                worst = worst.max(ping(&mut self.control, &mut thread)?);
                sleep(PING_INTERVAL);
            }
            Ok(())
        })?;
        Ok(([idle, pinged], worst))
    }
}

/// All at one moment.
fn time_out(scale: &Scale, locks: usize) -> Result<f64> {
    let mut crowd = Crowd::start()?;
    crowd.hold(locks)?;
    let waiters = scale.count(WAITERS);
    // As long as it takes to queue them, several times over.
    let end = Instant::now() + MARGIN + Duration::from_micros(40) * waiters as u32;
    let left = || {
        let left = end.saturating_duration_since(Instant::now());
        ("", left.as_millis().max(1).to_string())
    };
    crowd.queue(waiters, locks, left)?;
    crowd.control.until_waiting(waiters)?;
    sleep(
        end.saturating_duration_since(Instant::now())
            .saturating_sub(MARGIN / 2),
    );
    crowd.worst_ping_until_all_are_answered()
}

/// The writer releases all locks in one pipeline.
fn grant(scale: &Scale) -> Result<f64> {
    let mut crowd = Crowd::start()?;
    let locks = WAITERS / CROWD;
    crowd.hold(locks)?;
    crowd.queue(scale.count(WAITERS), locks, || ("SHARED", "0".into()))?;
    let mut bytes = Vec::new();
    (0..locks).for_each(|lock| encode(&["DLOCK.RELEASE", &key(lock), "writer"], &mut bytes));
    crowd.requests.send(&bytes)?;
    let worst = crowd.worst_ping_until_all_are_answered()?;
    (0..locks).try_for_each(|_| crowd.requests.receive().map(drop))?;
    Ok(worst)
}

/// The newest is repeated: it is found last. All in one pipeline.
fn repeat(_: &Scale) -> Result<f64> {
    let mut crowd = Crowd::start()?;
    crowd.hold(1)?;
    let names = (key(0), "owner".to_owned());
    let mut bytes = Vec::new();
    for number in 0..REQUESTS_OF_OWNER {
        encode_request(&names, "", "0", &format!("r{number}"), &mut bytes);
    }
    crowd.requests.send(&bytes)?;
    (0..REQUESTS_OF_OWNER).try_for_each(|_| crowd.requests.receive().map(drop))?;
    bytes.clear();
    let newest = format!("r{}", REQUESTS_OF_OWNER - 1);
    (0..PIPELINED).for_each(|_| encode_request(&names, "", "0", &newest, &mut bytes));
    crowd.control.call(&["CONFIG", "RESETSTAT"])?;
    crowd.requests.send(&bytes)?;
    (0..PIPELINED).try_for_each(|_| crowd.requests.receive().map(drop))?;
    crowd.control.spent_ms("dlock.acquire")
}

/// As many holders and waiters as the settings allow: one more request, which is refused its place and has to look at
/// them.
fn of_crowd(scale: &Scale) -> Result<f64> {
    let mut crowd = Crowd::start()?;
    let count = scale.count(CROWD);
    crowd.queue(count, 1, || ("SHARED", "0".into()))?;
    crowd.queue(1, 1, || ("", "0".into()))?;
    crowd.queue(count - 1, 1, || ("SHARED", "0".into()))?;
    crowd.control.until_waiting(count)?;
    crowd.control.call(&["CONFIG", "RESETSTAT"])?;
    let last = format!("owner-{}", 2 * count);
    crowd
        .control
        .call(&["DLOCK.ACQUIRE", &key(0), &last, LEASE, "SHARED"])?;
    crowd.control.spent_ms("dlock.acquire")
}

/// Each is held, and one request waits for it. Then nothing happens, but that another client sends PING.
pub fn contended_locks(scale: &Scale, round: usize, results: &mut Results) -> Result<()> {
    let mut crowd = Crowd::of(Server::cluster()?)?;
    let window = scale.window().max(SHORTEST_WINDOW);
    let (without, _) = crowd.usage(window)?;
    let locks = scale.count(CONTENDED);
    for first in (0..locks).step_by(BATCH) {
        let (batch, mut bytes) = (first..locks.min(first + BATCH), Vec::new());
        for lock in batch.clone() {
            encode(&["DLOCK.ACQUIRE", &key(lock), "writer", LEASE], &mut bytes);
        }
        crowd.requests.send(&bytes)?;
        for _ in batch {
            crowd.requests.receive()?;
        }
    }
    crowd.queue(locks, locks, || ("", "0".into()))?;
    let (with, worst) = crowd.usage(window)?;
    for (setting, [idle, pinged]) in [(CONTENDED_LOCKS, with), (NO_LOCKS, without)] {
        results
            .round(setting, DLOCK, round)
            .add("CPU, idle", "%", idle)
            .add("CPU, PING every ms", "%", pinged);
    }
    results
        .round(CONTENDED_LOCKS, DLOCK, round)
        .add("time", "ms", worst);
    Ok(())
}
