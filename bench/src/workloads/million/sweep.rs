//! Latency of other clients while many leases expire at once.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::implementations::command::{BATCH, Implementation, Names, Requests, short_names};
use crate::interrupt;
use crate::resp::{Connection, Reply};
use crate::results::stats::{ms, percentile, stats_of};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::workloads::bench::Bench;

/// Time from the first acquisition to the expiry of all leases: fixed, and per lock. Enough for a slow machine to acquire
/// all locks.
const LEASE: Duration = Duration::from_secs(2);
const LEASE_PER_LOCK: Duration = Duration::from_micros(20);
/// Short enough to notice SIGINT.
const MAX_SLEEP: Duration = Duration::from_millis(100);
const PROBE_INTERVAL: Duration = Duration::from_micros(200);
/// Every tenth probe is DBSIZE instead of PING. It costs the server the same.
const DBSIZE_EVERY: usize = 10;
/// The number of locks that the deletion target applies to.
pub const LOCKS_WITH_TARGET: usize = 100_000;
const TIMEOUT: Duration = Duration::from_secs(20);

/// Latency of a connection that probes continuously, in milliseconds.
struct RoundTrips {
    max: f64,
    p99_9: f64,
}

/// Results of one round.
struct Sample {
    sweep: RoundTrips,
    /// The same on the idle server for as long: noise of the machine.
    idle: RoundTrips,
    /// From the last expiry until all keys are deleted, in milliseconds.
    deletion: f64,
}

pub fn measure(bench: &Bench, locks: usize, summary: &mut Summary) -> Result<()> {
    let server = Server::start()?;
    let case = format!("{locks} leases expire at once");
    let samples = (0..bench.rounds(3, 1))
        .map(|_| {
            bench.progress.step("million", &case);
            sample(&server, locks)
        })
        .collect::<Result<Vec<_>>>()?;

    let figure = |name, of: fn(&Sample) -> f64| Figure::new(name, stats_of(&samples, of)).ms().case(&case);
    summary.add(figure("PING max", |sample| sample.sweep.max).at_most(5.0));
    summary.add(figure("  idle server", |sample| sample.idle.max));
    summary.add(figure("PING p99.9", |sample| sample.sweep.p99_9));
    summary.add(figure("  p99.9, idle server", |sample| sample.idle.p99_9));
    let deletion = figure("all keys deleted after the last expiry", |sample| sample.deletion);
    summary.add(if locks > LOCKS_WITH_TARGET {
        deletion
    } else {
        deletion.at_most(2_000.0)
    });
    Ok(())
}

fn sample(server: &Server, locks: usize) -> Result<Sample> {
    let (first_end, last_end) = acquire_all(&mut server.connect()?, locks)?;
    let pings = &mut server.connect()?;
    while Instant::now() < first_end {
        interrupt::check()?;
        thread::sleep(first_end.saturating_duration_since(Instant::now()).min(MAX_SLEEP));
    }

    let start = Instant::now();
    let sweep = probe(pings, |keys| keys == Some(0))?;
    let (deletion, duration) = (last_end.elapsed(), start.elapsed());
    let start = Instant::now();
    let idle = probe(pings, |_| start.elapsed() >= duration)?;
    Ok(Sample {
        sweep,
        idle,
        deletion: ms(deletion),
    })
}

/// Acquires all locks with leases that expire together. Returns the earliest and the latest possible expiry: a lease
/// starts between the request and its reply.
fn acquire_all(connection: &mut Connection, locks: usize) -> Result<(Instant, Instant)> {
    let until_end = LEASE + LEASE_PER_LOCK * u32::try_from(locks)?;
    let end = Instant::now() + until_end;
    let (mut first_end, mut last_end) = (end, end);
    let acquire = Implementation::dlock().acquire;
    for first in (0..locks).step_by(BATCH) {
        let lease_ms = end
            .saturating_duration_since(Instant::now())
            .as_millis()
            .try_into()?;
        if lease_ms == 0 {
            return Err(too_busy(locks, until_end));
        }
        let names = |number| Names {
            lease_ms,
            ..short_names(number)
        };
        let numbers = first..locks.min(first + BATCH);
        let requests = Requests::of(numbers.map(|number| (&acquire, names(number))));
        let lease = Duration::from_millis(lease_ms);
        first_end = first_end.min(Instant::now() + lease);
        requests.run(connection)?;
        last_end = last_end.max(Instant::now() + lease);
    }
    if Instant::now() >= first_end {
        return Err(too_busy(locks, until_end));
    }
    Ok((first_end, last_end))
}

fn too_busy(locks: usize, limit: Duration) -> Box<dyn Error> {
    format!("{locks} locks could not be acquired within {limit:?}: the machine is too busy").into()
}

/// Probes until `is_done`, which gets the number of keys whenever it is known.
///
/// One request at a time: a stall of 5 ms is one slow round trip, however many requests it delayed.
fn probe(connection: &mut Connection, is_done: impl Fn(Option<i64>) -> bool) -> Result<RoundTrips> {
    let mut round_trips = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < TIMEOUT {
        let is_dbsize = round_trips.len() % DBSIZE_EVERY == 0;
        let start = Instant::now();
        let reply = connection.call(&[if is_dbsize { "DBSIZE" } else { "PING" }])?;
        round_trips.push(ms(start.elapsed()));
        let keys = if let Reply::Integer(keys) = reply {
            Some(keys)
        } else {
            None
        };
        if is_done(keys) {
            return Ok(RoundTrips::of(round_trips));
        }
        thread::sleep(PROBE_INTERVAL);
    }
    Err(format!("the keys were not deleted within {TIMEOUT:?} of the last expiry").into())
}

impl RoundTrips {
    fn of(mut ms: Vec<f64>) -> Self {
        ms.sort_by(f64::total_cmp);
        Self {
            max: percentile(&ms, 100.0),
            p99_9: percentile(&ms, 99.9),
        }
    }
}
