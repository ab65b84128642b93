//! An uncontended lock: the server's CPU, and the latency for a client that waits for each reply.

use std::time::Instant;

use crate::error::Result;
use crate::locks::{self, Command, Lock, Requests, short_names};
use crate::results::Results;
use crate::scale::{Scale, passes};
use crate::server::{SETTINGS, Server};
use crate::stats::Times;
use crate::wire::Connection;

const LOCKS: usize = 60_000;
/// Locks in turn take parts of this size: long enough that refilling the caches hardly matters, shorter than most noise
/// of a machine.
const PART: usize = 20_000;
/// Pairs between two looks at the clock.
const PAIRS: usize = 100;
/// Without a log or a replica, all locks are measured, else the first of them.
const LOCKS_WITH_LOG: usize = 3;
const ROUNDS: usize = 5;

/// A server for one lock. A fresh one each round, because the memory layout of a process changes figures by up to 10 %
/// for its lifetime.
struct Instance {
    lock: Lock,
    connection: Connection,
    _server: Server,
}

pub fn measure(scale: Scale, results: &mut Results) -> Result<()> {
    for setting in SETTINGS {
        for round in 0..scale.rounds(ROUNDS) {
            let mut instances = start(setting)?;
            let count = instances.len();
            instances.rotate_left(round % count);
            let locks = scale.count(LOCKS);
            // Memory that the server requests from the system is not a cost of locks, nor are growing hash tables.
            held(&mut instances, locks)?;
            for instance in &mut instances {
                instance.connection.call(&["FLUSHALL", "SYNC"])?;
            }
            let held = held(&mut instances, locks)?;
            let pair = cpu_us(
                &mut instances,
                locks,
                &[|lock| &lock.acquire, |lock| &lock.release],
            )?;
            for (turn, instance) in instances.iter().enumerate() {
                let mut row = results.round(setting.0, instance.lock.name, round);
                row.add("CPU, held", "us", held[turn])
                    .add("CPU, pair", "us", pair[turn]);
            }
            one_at_a_time(scale, setting.0, round, &mut instances, results)?;
        }
    }
    Ok(())
}

fn start(setting: (&str, &str)) -> Result<Vec<Instance>> {
    let count = if setting.0 == "none" {
        locks::COUNT
    } else {
        LOCKS_WITH_LOG
    };
    let start = |index| {
        let server = Server::in_setting(setting)?;
        let mut connection = server.connect()?;
        let lock = locks::all(&mut connection)?.into_iter().nth(index);
        Ok(Instance {
            lock: lock.ok_or("no such lock")?,
            connection,
            _server: server,
        })
    };
    (0..count).map(start).collect()
}

/// All locks acquired, then all released: microseconds per lock.
fn held(instances: &mut [Instance], locks: usize) -> Result<Vec<f64>> {
    let acquire = cpu_us(instances, locks, &[|lock| &lock.acquire])?;
    let release = cpu_us(instances, locks, &[|lock| &lock.release])?;
    Ok(acquire
        .iter()
        .zip(release)
        .map(|(acquire, release)| acquire + release)
        .collect())
}

/// The server's CPU for these commands, in microseconds per lock. Instances take turns, one part each.
fn cpu_us(instances: &mut [Instance], locks: usize, commands: &[fn(&Lock) -> &Command]) -> Result<Vec<f64>> {
    let mut seconds = vec![0.0; instances.len()];
    for first in (0..locks).step_by(PART) {
        for (instance, seconds) in instances.iter_mut().zip(&mut seconds) {
            let commands: Vec<_> = commands.iter().map(|of| of(&instance.lock)).collect();
            let requests = Requests::of(&commands, (first..locks.min(first + PART)).map(short_names));
            let before = instance.connection.cpu_seconds()?;
            requests.run(&mut instance.connection)?;
            *seconds += instance.connection.cpu_seconds()? - before;
        }
    }
    Ok(seconds
        .iter()
        .map(|seconds| seconds * 1e6 / locks as f64)
        .collect())
}

/// Each reply is read before the next command is sent.
fn one_at_a_time(
    scale: Scale,
    setting: &str,
    round: usize,
    instances: &mut [Instance],
    results: &mut Results,
) -> Result<()> {
    let mut times = Vec::new();
    for _ in &*instances {
        times.push((Times::new()?, 0, 0.0));
    }
    let duration = scale.window() * u32::try_from(instances.len())?;
    for index in passes(duration, instances.len()) {
        let (instance, (times, pairs, seconds)) = (&mut instances[index], &mut times[index]);
        let lock = &instance.lock;
        let [acquire, release] = [&lock.acquire, &lock.release]
            .map(|command| Requests::of(&[command], std::iter::once(short_names(0))));
        let start = Instant::now();
        for _ in 0..PAIRS {
            let start = Instant::now();
            acquire.run(&mut instance.connection)?;
            release.run(&mut instance.connection)?;
            times.record(start.elapsed())?;
        }
        *pairs += PAIRS;
        *seconds += start.elapsed().as_secs_f64();
    }
    for (instance, (times, pairs, seconds)) in instances.iter().zip(times) {
        let mut row = results.round(setting, instance.lock.name, round);
        row.add("one at a time", "/s", pairs as f64 / seconds);
        row.add("latency p50", "us", times.us(50.0))
            .add("latency p99", "us", times.us(99.0));
    }
    Ok(())
}
