//! How much clients notice when very many leases end at once, with nobody there to release.

use std::thread;
use std::time::{Duration, Instant};

use crate::contenders::command::{BATCH, Requests, dlock_acquire, short_names};
use crate::resp::{Connection, Reply};
use crate::results::spread::{ms, spread};
use crate::results::table::{Figure, Summary};
use crate::server::Server;
use crate::works::Bench;
use crate::{Result, interrupt};

/// All leases end so long after the first lock was taken, and so much later for each lock. A slow machine must
/// be able to take all by then.
const LEASE: Duration = Duration::from_secs(2);
const LEASE_A_LOCK: Duration = Duration::from_micros(10);
/// Somebody may ask the run to end meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_micros(200);
/// Every so many probes are a DBSIZE in place of a PING: it costs the server the same.
const DBSIZE_EVERY: usize = 10;
/// For so many at once it is promised how soon they are gone.
pub const PROMISED: usize = 100_000;
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

pub fn measure(bench: &Bench, locks: usize, summary: &mut Summary) -> Result<()> {
    let server = Server::start(&bench.module)?;
    let case = format!("{locks} leases end at once");
    let samples = (0..bench.rounds(3, 1))
        .map(|_| {
            bench.progress.step("million", &case);
            sample(&server, locks)
        })
        .collect::<Result<Vec<_>>>()?;

    let figure = |name, of: fn(&Sample) -> f64| Figure::new(name, spread(&samples, of)).ms().case(&case);
    summary.add(figure("longest PING", |sample| sample.sweep.longest).at_most(5.0));
    summary.add(figure("  on the idle server", |sample| sample.idle.longest));
    summary.add(figure("p99.9 of PING", |sample| sample.sweep.p99_9));
    summary.add(figure("  p99.9 on the idle server", |sample| sample.idle.p99_9));
    let gone = figure("all keys gone after the last lease ended", |sample| sample.gone);
    summary.add(if locks > PROMISED {
        gone
    } else {
        gone.at_most(2_000.0)
    });
    Ok(())
}

fn sample(server: &Server, locks: usize) -> Result<Sample> {
    let (first_end, last_end) = acquire_all(&mut server.connect()?, locks)?;
    let pings = &mut server.connect()?;
    while Instant::now() < first_end {
        interrupt::check()?;
        thread::sleep(
            first_end
                .saturating_duration_since(Instant::now())
                .min(LONGEST_SLEEP),
        );
    }

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
fn acquire_all(connection: &mut Connection, locks: usize) -> Result<(Instant, Instant)> {
    let until_end = LEASE + LEASE_A_LOCK * u32::try_from(locks)?;
    let end = Instant::now() + until_end;
    let (mut first_end, mut last_end) = (end, end);
    for first in (0..locks).step_by(BATCH) {
        let lease_ms = end.saturating_duration_since(Instant::now()).as_millis();
        let acquire = dlock_acquire(&lease_ms.to_string());
        let numbers = first..locks.min(first + BATCH);
        let requests = Requests::of(numbers.map(|number| (&acquire, short_names(number))));
        let lease = Duration::from_millis(lease_ms.try_into()?);
        first_end = first_end.min(Instant::now() + lease);
        requests.run(connection)?;
        last_end = last_end.max(Instant::now() + lease);
    }
    if Instant::now() < first_end {
        Ok((first_end, last_end))
    } else {
        Err(format!("{locks} locks could not be taken within {until_end:?}: the machine is too busy").into())
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
