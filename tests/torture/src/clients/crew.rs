//! Several workers, each on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fastrand::Rng;

use super::actor::{Actor, Line};
use super::gate::Gate;
use super::route::Route;
use super::worker::{Habits, Worker};
use crate::history::Journal;

/// Longer than clients wait.
const QUIET_TIME: Duration = Duration::from_millis(1_000);

/// Workers that ask the server of one route.
pub struct Crew {
    members: Vec<Member>,
    stop: Arc<AtomicBool>,
}

/// What one can do to a worker.
pub struct Member {
    /// Closed, it stops as a process does by SIGSTOP.
    pub gate: Gate,
    /// Cut, it loses its connection as if it had been killed.
    pub line: Line,
    thread: JoinHandle<()>,
}

impl Crew {
    /// Workers called `<name>0`, `<name>1`, ...
    pub fn hire(
        count: usize,
        name: &str,
        route: &Route,
        journal: &Journal,
        habits: &Habits,
        rng: &mut Rng,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let members = (0..count).map(|n| {
            let actor = Actor::new(
                format!("{name}{n}"),
                route.clone(),
                journal.clone(),
                habits.patience,
            );
            let (gate, line) = (Gate::default(), actor.line());
            let mut worker = Worker::new(actor, habits.clone(), rng.fork(), gate.clone(), stop.clone());
            Member {
                gate,
                line,
                thread: thread::spawn(move || worker.run()),
            }
        });
        Self {
            members: members.collect(),
            stop: stop.clone(),
        }
    }

    /// Any of them.
    pub fn any(&self, rng: &mut Rng) -> &Member {
        &self.members[rng.usize(..self.members.len())]
    }

    /// Ends the work, and waits until all have finished what they were at. Before that they work for a while
    /// without faults: a waiter that was forgotten shows when nobody kills its client.
    pub fn dismiss(mut self) {
        thread::sleep(QUIET_TIME);
        self.send_home();
        for member in self.members.drain(..) {
            member.thread.join().expect("a worker has no reason to panic");
        }
    }

    fn send_home(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.members.iter().for_each(|member| member.gate.open());
    }
}

/// A scenario that fails leaves no threads at work.
impl Drop for Crew {
    fn drop(&mut self) {
        self.send_home();
    }
}
