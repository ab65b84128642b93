//! How much clients notice when very many leases end at once, with nobody there to release.

use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::bench::Bench;
use crate::contender::{BATCH, Requests, dlock_acquire, short_names};
use crate::resp::{Connection, Reply};
use crate::server::Server;
use crate::spread::Spread;
use crate::table::{Figure, Summary};

const LOCKS: usize = 100_000;
/// All leases end so long after the first lock was taken. A slow machine must be able to take all by then.
const LEASE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_micros(200);
/// Every so many probes are a DBSIZE in place of a PING: it costs the server the same.
const DBSIZE_EVERY: usize = 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// Round trips on a connection that asks all the time, in milliseconds.
struct RoundTrips {
    longest: f64,
    /// The longest but for one in a thousand.
    p99_9: f64,
}

/// What one round showed.
struct Sample {
    sweep: RoundTrips,
    /// The same on the idle server for as long: what the machine does without us.
    idle: RoundTrips,
    /// From the end of the last lease until no key is left, in milliseconds.
    gone: f64,
}

pub fn measure(bench: &Bench, summary: &mut Summary) -> Result<()> {
    let rounds = bench.rounds(5, 1);
    println!("\nSweep: {LOCKS} leases end at once, while a client sends PING every {PAUSE:?}");
    println!("medians of {rounds} rounds (lowest to highest), idle = the same client, nothing to sweep");
    let server = Server::start(&bench.module)?;
    let samples = (0..rounds).map(|_| sample(&server)).collect::<Result<Vec<_>>>()?;

    let spread = |of: fn(&Sample) -> f64| Spread::of(samples.iter().map(of));
    let (longest, idle_longest) = (
        spread(|sample| sample.sweep.longest),
        spread(|sample| sample.idle.longest),
    );
    let (p99_9, idle_p99_9) = (
        spread(|sample| sample.sweep.p99_9),
        spread(|sample| sample.idle.p99_9),
    );
    let gone = spread(|sample| sample.gone);
    println!(
        "     {:<16}{longest:.1} ms   idle {idle_longest:.1} ms",
        "longest PING"
    );
    println!("     {:<16}{p99_9:.1} ms   idle {idle_p99_9:.1} ms", "p99.9 PING");
    println!(
        "     {:<16}{gone:.0} ms after the last lease ended",
        "all keys gone"
    );

    summary.add(Figure::new("sweep, longest PING", longest).ms().at_most(5.0));
    summary.add(Figure::new("  the same on the idle server", idle_longest).ms());
    summary.add(Figure::new("sweep, all keys gone", gone).ms().at_most(2_000.0));
    Ok(())
}

fn sample(server: &Server) -> Result<Sample> {
    let (first_end, last_end) = acquire_all(&mut server.connect()?)?;
    let pings = &mut server.connect()?;
    thread::sleep(first_end.saturating_duration_since(Instant::now()));

    let start = Instant::now();
    let sweep = probe(pings, |left| left == Some(0))?;
    let (gone, took) = (last_end.elapsed(), start.elapsed());
    let start = Instant::now();
    let idle = probe(pings, |_| start.elapsed() >= took)?;
    Ok(Sample {
        sweep,
        idle,
        gone: ms(gone),
    })
}

/// Takes all locks, with leases that end at one moment. Between which moments they really do: a lease
/// begins at some time between the request and its reply.
fn acquire_all(connection: &mut Connection) -> Result<(Instant, Instant)> {
    let end = Instant::now() + LEASE;
    let (mut first_end, mut last_end) = (end, end);
    for batch in 0..LOCKS / BATCH {
        let lease_ms = end.saturating_duration_since(Instant::now()).as_millis();
        let acquire = dlock_acquire(&lease_ms.to_string());
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let requests = Requests::of(numbers.map(|number| (&acquire, short_names(number))));
        let lease = Duration::from_millis(lease_ms.try_into()?);
        first_end = first_end.min(Instant::now() + lease);
        requests.run(connection)?;
        last_end = last_end.max(Instant::now() + lease);
    }
    if Instant::now() < first_end {
        Ok((first_end, last_end))
    } else {
        Err(format!("{LOCKS} locks could not be taken within {LEASE:?}: the machine is too busy").into())
    }
}

/// Asks all the time, until `is_over` says so, which is told how many keys there are when that is known.
///
/// One request at a time: a stall of 5 ms is one slow round trip, however many it kept from being sent.
fn probe(connection: &mut Connection, is_over: impl Fn(Option<i64>) -> bool) -> Result<RoundTrips> {
    let mut round_trips = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let asks_size = round_trips.len() % DBSIZE_EVERY == 0;
        let start = Instant::now();
        let reply = connection.call(&[if asks_size { "DBSIZE" } else { "PING" }])?;
        round_trips.push(ms(start.elapsed()));
        let size = if let Reply::Integer(size) = reply {
            Some(size)
        } else {
            None
        };
        if is_over(size) {
            return RoundTrips::of(round_trips);
        }
        thread::sleep(PAUSE);
    }
    Err(format!("the locks were not gone {PATIENCE:?} after their leases had ended").into())
}

impl RoundTrips {
    fn of(mut ms: Vec<f64>) -> Result<Self> {
        ms.sort_by(f64::total_cmp);
        let at = |index: usize| ms.get(index).copied().ok_or("no round trip");
        let last = ms.len() - 1;
        Ok(Self {
            longest: at(last)?,
            p99_9: at(last - ms.len() / 1000)?,
        })
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
