//! Threads that contend for locks until they are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastrand::Rng;

use super::gate::Gate;
use super::lock_client::{LockClient, Route};
use super::pace::Pace;
use super::worker::{Worker, Workload};
use crate::history::Recorder;

/// Locks that are held for long, and contenders for each.
const HELD: (usize, usize) = (4, 3);
/// Locks that are passed on at once, and contenders for each.
const PASSED: (usize, usize) = (4, 2);
/// So much shorter are the leases of the latter.
const SHORTER: u64 = 10;
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// What contenders ask for in a drill.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Locks whose holders keep them for a good part of a lease, or never release them.
    pub held: Vec<String>,
    /// Locks that are never kept for long: they show when locks are granted.
    pub passed: Vec<String>,
    /// The longest lease.
    pub lease_ms: u64,
    /// Acquisitions per second, of all contenders together.
    pub rate: u32,
}

impl Plan {
    /// With names that no other run has.
    pub fn new(lease_ms: u64, rate: u32) -> Self {
        let run = Rng::new().u64(..);
        let names = |kind: &str, count| {
            let name = |n| format!("dlock-drill:{run:016x}:{kind}{n}");
            (0..count).map(name).collect()
        };
        Self {
            held: names("held", HELD.0),
            passed: names("passed", PASSED.0),
            lease_ms,
            rate,
        }
    }

    /// The names of all locks.
    pub fn locks(&self) -> impl Iterator<Item = &String> {
        self.held.iter().chain(&self.passed)
    }

    /// How many contenders there are.
    pub fn contenders(&self) -> usize {
        self.held.len() * HELD.1 + self.passed.len() * PASSED.1
    }

    /// Starts the contenders.
    pub fn start<R: Route + Send + 'static>(&self, route: &R, recorder: &Recorder) -> Contenders
    where
        R::Link: Send,
    {
        let pace = Pace::per_second(self.rate);
        let mut contenders = Contenders::default();
        for (n, lock) in self.held.iter().enumerate() {
            for m in 0..HELD.1 {
                let workload = Workload::holding(lock.clone(), self.lease_ms, REPLY_TIMEOUT, &pace);
                contenders.start(format!("held{n}-{m}"), route, recorder, workload);
            }
        }
        for (n, lock) in self.passed.iter().enumerate() {
            for m in 0..PASSED.1 {
                let lease_ms = self.lease_ms / SHORTER;
                let workload = Workload::passing(lock.clone(), lease_ms, REPLY_TIMEOUT, &pace);
                contenders.start(format!("passed{n}-{m}"), route, recorder, workload);
            }
        }
        contenders
    }

    /// How long contenders may take to end after they were told to.
    pub fn longest_end(&self) -> Duration {
        Duration::from_millis(4 * self.lease_ms) + 2 * REPLY_TIMEOUT
    }
}

/// Contenders of a drill.
#[derive(Default)]
pub struct Contenders {
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

impl Contenders {
    /// One more contender. The names of its owners begin with `name`.
    fn start<R: Route + Send + 'static>(
        &mut self,
        name: String,
        route: &R,
        recorder: &Recorder,
        workload: Workload,
    ) where
        R::Link: Send,
    {
        let client = LockClient::new(name, route.clone(), recorder.clone(), workload.reply_timeout);
        let stop = Arc::clone(&self.stop);
        let mut worker = Worker::new(client, workload, Rng::new(), Gate::default(), stop);
        self.threads.push(thread::spawn(move || worker.run()));
    }

    /// No contender asks for a lock any more.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether all have released what they held, or given up.
    pub fn have_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

/// A drill that fails leaves no contender behind.
impl Drop for Contenders {
    fn drop(&mut self) {
        self.stop();
    }
}
