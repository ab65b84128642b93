//! Clients that contend for a lock: throughput, waits, commands per acquisition, and fairness.

use std::thread;
use std::time::{Duration, Instant};

use super::lock_owner::LockOwner;
use crate::error::Result;
use crate::locks::LEASE;
use crate::results::{DLOCK, Results, Round};
use crate::scale::Scale;
use crate::server::Server;
use crate::stats::{Times, fairness};

const CLIENTS: [usize; 5] = [2, 4, 16, 64, 256];

/// Time to start the threads: fixed, and per thread.
const START_DELAY: Duration = Duration::from_millis(20);
const START_DELAY_PER_CLIENT: Duration = Duration::from_micros(300);

pub struct Window {
    /// How long a client holds the lock.
    pub section: Duration,
    /// Before the measurement.
    pub warm_up: Duration,
    pub duration: Duration,
}

/// What one client measured.
#[derive(Default)]
pub struct Log {
    /// From request to grant; the last one may be cut off by the end of the window.
    waits: Vec<Duration>,
    acquired: usize,
}

pub fn measure(scale: Scale, results: &mut Results) -> Result<()> {
    for round in 0..scale.rounds(3) {
        for clients in CLIENTS {
            let window = Window {
                section: Duration::from_millis(1),
                warm_up: scale.window() / 10,
                duration: scale.window(),
            };
            let row = results.round("none, 1 ms", DLOCK, round).clients(clients);
            one_round(&Server::start()?, clients, window, row)?;
        }
    }
    Ok(())
}

fn one_round(server: &Server, count: usize, window: Window, mut row: Round) -> Result<()> {
    let client = |number| LockOwner::new(server, "lock", &format!("owner-{number:06}"), LEASE);
    let clients = (0..count).map(client).collect::<Result<Vec<_>>>()?;
    let (seconds, control) = (window.duration.as_secs_f64(), &mut server.connect()?);
    let logs = run(clients, window)?;
    // Each grant is released once.
    let (acquires, releases) = (control.calls("dlock.acquire")?, control.calls("dlock.release")?);
    add_waits(&logs, seconds, &mut row)?;
    row.add("commands per acquisition", "", (acquires + releases) / releases);
    Ok(())
}

/// Figures of the clients of one round.
pub fn add_waits(logs: &[Log], seconds: f64, row: &mut Round) -> Result<()> {
    let mut waits = Times::new()?;
    logs.iter()
        .flat_map(|log| &log.waits)
        .try_for_each(|wait| waits.record(*wait))?;
    let acquired: Vec<f64> = logs.iter().map(|log| log.acquired as f64).collect();
    row.add("acquisitions", "/s", acquired.iter().sum::<f64>() / seconds);
    for (figure, percentile) in [("wait p50", 50.0), ("wait p99", 99.0), ("wait max", 100.0)] {
        row.add(figure, "ms", waits.ms(percentile));
    }
    let fairness = fairness(&acquired);
    if fairness.is_finite() {
        row.add("fairness (Jain)", "", fairness);
    }
    Ok(())
}

/// Runs clients concurrently, each of which acquires and releases its lock repeatedly.
pub fn run(clients: Vec<LockOwner>, window: Window) -> Result<Vec<Log>> {
    let start = Instant::now() + START_DELAY + START_DELAY_PER_CLIENT * u32::try_from(clients.len())?;
    thread::scope(|scope| {
        let window = &window;
        let threads: Vec<_> = clients
            .into_iter()
            .map(|client| scope.spawn(move || run_client(client, start, window)))
            .collect();
        let logs = threads.into_iter().map(|thread| thread.join());
        logs.map(|log| log.map_err(|_| "a client panicked")?).collect()
    })
}

/// Waits in the queue past the end: the others stop then, so it is granted soon after.
fn run_client(mut client: LockOwner, start: Instant, window: &Window) -> Result<Log> {
    thread::sleep(start.saturating_duration_since(Instant::now()));
    let mut log = Log::default();
    let begin = start + window.warm_up;
    let end = begin + window.duration;
    loop {
        let requested = Instant::now();
        if requested >= end {
            return Ok(log);
        }
        client.ask()?;
        client.granted()?;
        let waited_until = Instant::now().min(end);
        if waited_until >= begin {
            log.waits.push(waited_until - requested.max(begin));
            log.acquired += usize::from(waited_until < end);
        }
        if !window.section.is_zero() {
            thread::sleep(window.section);
        }
        client.send_release()?;
        client.released()?;
    }
}
