//! One round of workers that all want the same lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::contenders::Client;
use crate::results::spread::{fairness, ms, percentile};

/// So long it takes to start the threads, and for each of them.
const START: Duration = Duration::from_millis(20);
const START_A_WORKER: Duration = Duration::from_micros(300);

pub struct Shift {
    /// For so long each works inside.
    pub section: Duration,
    pub lasts: Duration,
}

pub struct Worker {
    client: Box<dyn Client>,
    /// Of the room inside, so much is taken by this one.
    takes: usize,
}

impl Worker {
    /// Nobody else may be inside with a mutex; one of several in a semaphore.
    pub fn alone(client: Box<dyn Client>) -> Self {
        Self::with(client, 1)
    }

    pub fn with(client: Box<dyn Client>, takes: usize) -> Self {
        Self { client, takes }
    }
}

/// What one worker saw.
#[derive(Default)]
pub struct Log {
    /// In milliseconds, from the request to the grant; of the last one perhaps only to the end of the shift.
    waits: Vec<f64>,
    /// Within the shift.
    acquired: usize,
    /// The last one may have come after its end.
    grants: usize,
    commands: u64,
}

/// What all of them saw.
pub struct Group {
    pub logs: Vec<Log>,
    /// Sent by all, if they can tell.
    pub commands: f64,
    lasts: Duration,
}

/// What one round showed.
pub struct Outcome {
    /// In a second.
    pub acquisitions: f64,
    pub wait_p50: f64,
    pub wait_p99: f64,
    pub wait_max: f64,
    /// For each grant.
    pub commands: f64,
    /// Jain's index of the acquisitions of each worker.
    pub fairness: f64,
    /// So often each had the lock, on average.
    pub turns: f64,
}

/// Lets them work side by side. An error if there was ever more inside than there is room for.
pub fn work(workers: Vec<Worker>, room: usize, shift: Shift) -> Result<Group> {
    let inside = AtomicUsize::new(0);
    let count = u32::try_from(workers.len())?;
    let start = Instant::now() + START + START_A_WORKER * count;
    let logs = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                let (inside, shift) = (&inside, &shift);
                scope.spawn(move || {
                    thread::sleep(start.saturating_duration_since(Instant::now()));
                    one(worker, start + shift.lasts, shift.section, inside, room)
                        .map_err(|error| error.to_string())
                })
            })
            .collect();
        let logs = threads.into_iter().map(|thread| thread.join());
        logs.map(|log| Ok(log.map_err(|_| "a worker panicked")??))
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(Group {
        commands: logs.iter().map(|log| log.commands).sum::<u64>() as f64,
        logs,
        lasts: shift.lasts,
    })
}

fn one(
    mut worker: Worker,
    end: Instant,
    section: Duration,
    inside: &AtomicUsize,
    room: usize,
) -> Result<Log> {
    let mut log = Log::default();
    loop {
        let asked = Instant::now();
        if asked >= end {
            break;
        }
        let is_granted = worker.client.acquire(end)?;
        let waited_until = Instant::now().min(end);
        log.waits.push(ms(waited_until - asked));
        if !is_granted {
            break;
        }
        log.grants += 1;
        if waited_until == end {
            worker.client.release()?;
            break;
        }
        log.acquired += 1;
        if inside.fetch_add(worker.takes, Ordering::SeqCst) + worker.takes > room {
            return Err("more were inside than the lock lets in".into());
        }
        if !section.is_zero() {
            thread::sleep(section);
        }
        inside.fetch_sub(worker.takes, Ordering::SeqCst);
        worker.client.release()?;
    }
    log.commands = worker.client.commands().unwrap_or(0);
    Ok(log)
}

impl Group {
    /// Of all of them.
    pub fn outcome(&self, commands: f64) -> Outcome {
        Outcome::of(&self.logs, self.lasts, commands)
    }

    /// Of the first so many, and of the rest.
    pub fn split(&self, at: usize) -> (Outcome, Outcome) {
        let (first, rest) = self.logs.split_at(at);
        let of = |logs: &[Log]| {
            let commands = logs.iter().map(|log| log.commands).sum::<u64>() as f64;
            Outcome::of(logs, self.lasts, commands)
        };
        (of(first), of(rest))
    }
}

impl Outcome {
    fn of(logs: &[Log], lasts: Duration, commands: f64) -> Self {
        let mut waits: Vec<f64> = logs.iter().flat_map(|log| log.waits.iter().copied()).collect();
        waits.sort_by(f64::total_cmp);
        let acquired: Vec<f64> = logs.iter().map(|log| log.acquired as f64).collect();
        let grants: usize = logs.iter().map(|log| log.grants).sum();
        Self {
            acquisitions: acquired.iter().sum::<f64>() / lasts.as_secs_f64(),
            wait_p50: percentile(&waits, 50.0),
            wait_p99: percentile(&waits, 99.0),
            wait_max: percentile(&waits, 100.0),
            commands: commands / grants as f64,
            fairness: fairness(&acquired),
            turns: acquired.iter().sum::<f64>() / acquired.len() as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A lock within this process; one that lets everybody in is broken.
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

    fn work_with(is_broken: bool) -> Result<Group> {
        let is_held = Arc::new(Mutex::new(false));
        let local = || Local {
            is_held: Arc::clone(&is_held),
            is_broken,
        };
        let workers = (0..4).map(|_| Worker::alone(Box::new(local()))).collect();
        let shift = Shift {
            section: Duration::from_millis(1),
            lasts: Duration::from_millis(500),
        };
        work(workers, 1, shift)
    }

    #[test]
    fn an_outcome_is_made_of_what_the_workers_saw() -> Result<()> {
        let group = work_with(false)?;
        let outcome = group.outcome(group.commands);
        let grants: usize = group.logs.iter().map(|log| log.grants).sum();
        assert_eq!(outcome.commands, 40.0 / grants as f64);
        assert!(outcome.acquisitions <= 1_000.0, "each holds it for a millisecond");
        assert!(outcome.wait_p50 <= outcome.wait_p99 && outcome.wait_p99 <= outcome.wait_max);
        assert!(
            outcome.wait_max <= 500.0,
            "nobody waits longer than the shift lasts"
        );
        Ok(())
    }

    #[test]
    fn a_lock_that_lets_two_in_is_found_out() {
        // However busy the machine is: at some time two are inside at once.
        let patience = Instant::now() + Duration::from_secs(20);
        while work_with(true).is_ok() {
            assert!(Instant::now() < patience, "nobody noticed");
        }
    }
}
