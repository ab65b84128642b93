//! Leases that expire: the latency of other clients while a million do.

use std::thread;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::locks::{BATCH, expect_done, short_names};
use crate::results::{DLOCK, Results};
use crate::scale::Scale;
use crate::server::Server;
use crate::stats::{Times, ms};
use crate::wire::{Connection, encode};

/// Leases that expire at once.
const MANY: [(&str, usize); 2] = [
    ("100 000 leases expire at once", 100_000),
    ("a million leases expire at once", 1_000_000),
];

/// From the first acquisition to the expiry of all leases: fixed, and per lock. Enough for a slow machine.
const UNTIL_END: Duration = Duration::from_secs(2);
const UNTIL_END_PER_LOCK: Duration = Duration::from_micros(20);
const PROBE_INTERVAL: Duration = Duration::from_micros(200);
/// Every tenth probe is DBSIZE instead of PING. It costs the server the same.
const DBSIZE_EVERY: usize = 10;
const TIMEOUT: Duration = Duration::from_secs(30);

pub fn measure(scale: &Scale, results: &mut Results) -> Result<()> {
    let server = Server::start()?;
    for (setting, count) in MANY {
        let count = scale.count(count);
        for round in 0..scale.rounds(3) {
            let (sweep, deletion) = expire(&server, count)?;
            let mut row = results.round(setting, DLOCK, round);
            row.add("PING max", "ms", sweep.ms(100.0))
                .add("all keys deleted", "ms", ms(deletion));
        }
    }
    Ok(())
}

/// Round trips while leases expire, and the time from the last expiry until all keys are gone.
fn expire(server: &Server, count: usize) -> Result<(Times, Duration)> {
    let (first_end, last_end) = acquire_all(&mut server.connect()?, count)?;
    let probes = &mut server.connect()?;
    thread::sleep(first_end.saturating_duration_since(Instant::now()));
    let sweep = probe_until_no_keys(probes)?;
    Ok((sweep, last_end.elapsed()))
}

/// Leases that end together. Returns the earliest and the latest possible end: a lease begins between the request and
/// its reply.
fn acquire_all(connection: &mut Connection, count: usize) -> Result<(Instant, Instant)> {
    let end = Instant::now() + UNTIL_END + UNTIL_END_PER_LOCK * u32::try_from(count)?;
    let (mut first_end, mut last_end) = (end, end);
    for first in (0..count).step_by(BATCH) {
        let lease = end.saturating_duration_since(Instant::now());
        let (lease_ms, numbers) = (lease.as_millis().to_string(), first..count.min(first + BATCH));
        let mut bytes = Vec::new();
        for names in numbers.clone().map(short_names) {
            encode(
                &["DLOCK.ACQUIRE", &names.key, &names.owner, &lease_ms],
                &mut bytes,
            );
        }
        first_end = first_end.min(Instant::now() + lease);
        connection.send(&bytes)?;
        for _ in numbers {
            expect_done(&connection.receive()?)?;
        }
        last_end = last_end.max(Instant::now() + lease);
    }
    if Instant::now() >= first_end {
        return Err(format!("{count} locks could not be acquired in time: the machine is too busy").into());
    }
    Ok((first_end, last_end))
}

/// One request at a time: a stall of 5 ms is one slow round trip, however many requests it delayed.
fn probe_until_no_keys(connection: &mut Connection) -> Result<Times> {
    let (mut times, begin) = (Times::new()?, Instant::now());
    for probe in 0_usize.. {
        let start = Instant::now();
        let is_done = if probe.is_multiple_of(DBSIZE_EVERY) {
            connection.ask::<u64>(&["DBSIZE"])? == 0
        } else {
            connection.call(&["PING"])?;
            false
        };
        times.record(start.elapsed())?;
        if is_done {
            break;
        }
        if begin.elapsed() > TIMEOUT {
            return Err(format!("the keys were not deleted within {TIMEOUT:?}").into());
        }
        thread::sleep(PROBE_INTERVAL);
    }
    Ok(times)
}
