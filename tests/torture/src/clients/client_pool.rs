//! Several workers, each on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastrand::Rng;

use super::gate::Gate;
use super::lock_client::{ConnCutter, LockClient};
use super::route::Route;
use super::worker::{Worker, Workload};
use crate::history::Recorder;

/// Longer than clients wait.
const QUIET_TIME: Duration = Duration::from_millis(1_000);

/// Workers that ask the server of one route.
pub struct ClientPool {
    members: Vec<PooledClient>,
    stop: Arc<AtomicBool>,
}

/// What one can do to a worker.
pub struct PooledClient {
    /// Closed, it stops as a process does by SIGSTOP.
    pub gate: Gate,
    /// Cut, it loses its connection as if it had been killed.
    pub cutter: ConnCutter,
    thread: JoinHandle<()>,
}

impl ClientPool {
    /// Workers called `<name>0`, `<name>1`, ...
    pub fn start(
        count: usize,
        name: &str,
        route: &Route,
        recorder: &Recorder,
        workload: &Workload,
        rng: &mut Rng,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let members = (0..count).map(|n| {
            let lock_client = LockClient::new(
                format!("{name}{n}"),
                route.clone(),
                recorder.clone(),
                workload.reply_timeout,
            );
            let (gate, cutter) = (Gate::default(), lock_client.cutter());
            let mut worker = Worker::new(
                lock_client,
                workload.clone(),
                rng.fork(),
                gate.clone(),
                stop.clone(),
            );
            PooledClient {
                gate,
                cutter,
                thread: thread::spawn(move || worker.run()),
            }
        });
        Self {
            members: members.collect(),
            stop: stop.clone(),
        }
    }

    /// Any of them.
    pub fn any(&self, rng: &mut Rng) -> &PooledClient {
        &self.members[rng.usize(..self.members.len())]
    }

    /// FinalStates the work, and waits until all have finished what they were at. Before that they work for a while
    /// without faults: a waiter that was forgotten shows when nobody kills its client.
    pub fn finish(mut self) {
        thread::sleep(QUIET_TIME);
        self.stop_all();
        for client in self.members.drain(..) {
            client.thread.join().expect("a worker has no reason to panic");
        }
    }

    fn stop_all(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.members.iter().for_each(|client| client.gate.open());
    }
}

/// A scenario that fails leaves no threads at work.
impl Drop for ClientPool {
    fn drop(&mut self) {
        self.stop_all();
    }
}
