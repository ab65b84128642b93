//! A pool of client threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastrand::Rng;

use dlock_drill::clients::{Gate, LockClient, Worker, Workload};

use super::conn_cutter::ConnCutter;
use super::route::{ClientRoute, Route};
use crate::history::Recorder;

/// Longer than clients wait for a lock.
const QUIET_TIME: Duration = Duration::from_millis(1_000);

/// Clients that share a route and a workload.
pub struct ClientPool {
    members: Vec<PooledClient>,
    stop: Arc<AtomicBool>,
}

/// Handles to inject faults into a client.
pub struct PooledClient {
    /// Pauses the client, as SIGSTOP pauses a process.
    pub gate: Gate,
    pub cutter: ConnCutter,
    thread: JoinHandle<()>,
}

impl ClientPool {
    /// Starts clients called `<name>0`, `<name>1`, ...
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
                ClientRoute::from(route.clone()),
                recorder.clone(),
                workload.reply_timeout,
            );
            let (gate, cutter) = (Gate::default(), lock_client.route().cutter.clone());
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

    pub fn any(&self, rng: &mut Rng) -> &PooledClient {
        &self.members[rng.usize(..self.members.len())]
    }

    /// Stops all clients after a while without faults, in which a waiter that the server forgot would be noticed.
    pub fn finish(mut self) {
        thread::sleep(QUIET_TIME);
        self.stop_all();
        for client in self.members.drain(..) {
            client.thread.join().expect("workers do not panic");
        }
    }

    fn stop_all(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.members.iter().for_each(|client| client.gate.open());
    }
}

/// Stops the threads of a scenario that panics.
impl Drop for ClientPool {
    fn drop(&mut self) {
        self.stop_all();
    }
}
