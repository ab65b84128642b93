//! One round of workers that contend for the same lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::implementations::Client;
use crate::results::stats::{fairness, ms, percentile};

/// Time to start the threads: fixed, and per thread.
const START_DELAY: Duration = Duration::from_millis(20);
const START_DELAY_PER_WORKER: Duration = Duration::from_micros(300);

#[derive(Serialize, Deserialize)]
pub struct Window {
    /// How long a worker holds the lock.
    pub critical_section: Duration,
    /// Before the measurement.
    pub warm_up: Duration,
    pub duration: Duration,
}

impl Window {
    /// Without a warm-up.
    pub fn of(critical_section: Duration, duration: Duration) -> Self {
        Self {
            critical_section,
            warm_up: Duration::ZERO,
            duration,
        }
    }
}

pub struct Worker {
    client: Box<dyn Client>,
    /// Share of the capacity that this worker takes.
    weight: usize,
}

impl Worker {
    /// For a mutex, or one permit of a semaphore.
    pub fn new(client: Box<dyn Client>) -> Self {
        Self::weighted(client, 1)
    }

    pub fn weighted(client: Box<dyn Client>, weight: usize) -> Self {
        Self { client, weight }
    }
}

/// What one worker measured.
#[derive(Default, Serialize, Deserialize)]
pub struct WorkerLog {
    /// In milliseconds, from request to grant; the last one may be cut off by the end of the window.
    waits: Vec<f64>,
    /// Within the window.
    acquired: usize,
    /// Includes those of the warm-up, and one that may have come after the end of the window.
    grants: usize,
    commands: u64,
}

/// What all workers measured.
#[derive(Default, Serialize, Deserialize)]
pub struct WorkerLogs {
    pub logs: Vec<WorkerLog>,
    /// Total, as far as clients can count them.
    pub commands: f64,
    duration: Duration,
}

/// Figures of one round.
pub struct Outcome {
    /// Per second.
    pub acquisitions: f64,
    pub wait_p50: f64,
    pub wait_p99: f64,
    pub wait_max: f64,
    /// Per grant.
    pub commands: f64,
    /// Jain's index of the acquisitions of each worker.
    pub fairness: f64,
    /// Mean.
    pub acquisitions_per_client: f64,
}

/// Runs workers concurrently. An error if the holders ever exceed the capacity of the lock.
pub fn run_workers(workers: Vec<Worker>, capacity: usize, window: Window) -> Result<WorkerLogs> {
    let held = AtomicUsize::new(0);
    let count = u32::try_from(workers.len())?;
    let start = Instant::now() + START_DELAY + START_DELAY_PER_WORKER * count;
    let logs = thread::scope(|scope| {
        let (held, window) = (&held, &window);
        let run = |worker| {
            scope.spawn(move || {
                thread::sleep(start.saturating_duration_since(Instant::now()));
                run_worker(worker, start, window, held, capacity).map_err(|error| error.to_string())
            })
        };
        let threads: Vec<_> = workers.into_iter().map(run).collect();
        let logs = threads.into_iter().map(|thread| thread.join());
        let logs = logs.map(|log| Ok(log.map_err(|_| "a worker panicked")??));
        logs.collect::<Result<Vec<_>>>()
    })?;
    Ok(WorkerLogs {
        commands: logs.iter().map(|log| log.commands).sum::<u64>() as f64,
        logs,
        duration: window.duration,
    })
}

fn run_worker(
    mut worker: Worker,
    start: Instant,
    window: &Window,
    held: &AtomicUsize,
    capacity: usize,
) -> Result<WorkerLog> {
    let mut log = WorkerLog::default();
    let begin = start + window.warm_up;
    let end = begin + window.duration;
    loop {
        let requested = Instant::now();
        if requested >= end {
            break;
        }
        let is_granted = worker.client.acquire(end)?;
        let waited_until = Instant::now().min(end);
        let is_measured = waited_until >= begin;
        if is_measured {
            log.waits.push(ms(waited_until - requested.max(begin)));
        }
        if !is_granted {
            break;
        }
        log.grants += 1;
        if waited_until == end {
            worker.client.release()?;
            break;
        }
        log.acquired += usize::from(is_measured);
        if held.fetch_add(worker.weight, Ordering::SeqCst) + worker.weight > capacity {
            return Err("more clients held the lock than its limit".into());
        }
        if !window.critical_section.is_zero() {
            thread::sleep(window.critical_section);
        }
        held.fetch_sub(worker.weight, Ordering::SeqCst);
        worker.client.release()?;
    }
    log.commands = worker.client.commands().unwrap_or(0);
    Ok(log)
}

impl WorkerLogs {
    /// Of workers that ran at the same time.
    pub fn merged(parts: Vec<Self>) -> Self {
        parts.into_iter().fold(Self::default(), |mut all, part| {
            all.logs.extend(part.logs);
            all.commands += part.commands;
            all.duration = part.duration;
            all
        })
    }

    /// Of all workers.
    pub fn outcome(&self, commands: f64) -> Outcome {
        Outcome::of(&self.logs, self.duration, commands)
    }

    /// Of the first `at` workers, and of the rest.
    pub fn split(&self, at: usize) -> (Outcome, Outcome) {
        let (first, rest) = self.logs.split_at(at);
        let of = |logs: &[WorkerLog]| {
            let commands = logs.iter().map(|log| log.commands).sum::<u64>() as f64;
            Outcome::of(logs, self.duration, commands)
        };
        (of(first), of(rest))
    }
}

impl Outcome {
    fn of(logs: &[WorkerLog], duration: Duration, commands: f64) -> Self {
        let mut waits: Vec<f64> = logs.iter().flat_map(|log| log.waits.iter().copied()).collect();
        waits.sort_by(f64::total_cmp);
        let acquired: Vec<f64> = logs.iter().map(|log| log.acquired as f64).collect();
        let grants: usize = logs.iter().map(|log| log.grants).sum();
        Self {
            acquisitions: acquired.iter().sum::<f64>() / duration.as_secs_f64(),
            wait_p50: percentile(&waits, 50.0),
            wait_p99: percentile(&waits, 99.0),
            wait_max: percentile(&waits, 100.0),
            commands: commands / grants as f64,
            fairness: fairness(&acquired),
            acquisitions_per_client: acquired.iter().sum::<f64>() / acquired.len() as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A lock in this process. A broken one grants every request.
    struct Local {
        is_held: Arc<Mutex<bool>>,
        is_broken: bool,
    }

    impl Client for Local {
        fn acquire(&mut self, end: Instant) -> Result<bool> {
            loop {
                let mut is_held = self.is_held.lock().map_err(|error| error.to_string())?;
                if self.is_broken || !*is_held {
                    *is_held = true;
                    return Ok(true);
                }
                drop(is_held);
                if Instant::now() >= end {
                    return Ok(false);
                }
                thread::yield_now();
            }
        }

        fn release(&mut self) -> Result<()> {
            *self.is_held.lock().map_err(|error| error.to_string())? = false;
            Ok(())
        }

        fn commands(&self) -> Option<u64> {
            Some(10)
        }
    }

    fn run_with(is_broken: bool) -> Result<WorkerLogs> {
        let is_held = Arc::new(Mutex::new(false));
        let local = || Local {
            is_held: Arc::clone(&is_held),
            is_broken,
        };
        let workers = (0..4).map(|_| Worker::new(Box::new(local()))).collect();
        let window = Window::of(Duration::from_millis(1), Duration::from_millis(500));
        run_workers(workers, 1, window)
    }

    #[test]
    fn outcome_of_workers_summarises_their_logs() -> Result<()> {
        let logs = run_with(false)?;
        let outcome = logs.outcome(logs.commands);
        let grants: usize = logs.logs.iter().map(|log| log.grants).sum();
        assert_eq!(outcome.commands, 40.0 / grants as f64);
        assert!(outcome.acquisitions <= 1_000.0, "each holds it for a millisecond");
        assert!(outcome.wait_p50 <= outcome.wait_p99 && outcome.wait_p99 <= outcome.wait_max);
        assert!(outcome.wait_max <= 500.0, "no wait exceeds the window");
        Ok(())
    }

    #[test]
    fn lock_with_two_holders_is_detected() {
        // However busy the machine is, two workers overlap at some point.
        let deadline = Instant::now() + Duration::from_secs(20);
        while run_with(true).is_ok() {
            assert!(Instant::now() < deadline, "never detected");
        }
    }
}
