//! What goes wrong.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::{KEYS, LONGEST_LEASE, PROCESSES, RESPONSE_TIMEOUT, RUNTIMES, World};
use crate::simulation::ledger::{key_name, lock};
use crate::simulation::network::{self, Fate, Net};
use crate::simulation::runtimes::Runtime;
use crate::simulation::{elapsed, tell};

/// What goes wrong. A seed has some of these.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Cut,
    CutAll,
    StallConnection,
    Stall,
    Refuse,
    Reject,
    EndInbox,
    BreakLock,
    Restart,
    TurnAway,
    SlowProcess,
    IdleRuntime,
    EndRuntime,
}

pub(super) const FAULTS: [Fault; 13] = [
    Fault::Cut,
    Fault::CutAll,
    Fault::StallConnection,
    Fault::Stall,
    Fault::Refuse,
    Fault::Reject,
    Fault::EndInbox,
    Fault::BreakLock,
    Fault::Restart,
    Fault::TurnAway,
    Fault::SlowProcess,
    Fault::IdleRuntime,
    Fault::EndRuntime,
];

impl World {
    pub(super) fn go_wrong(&mut self) {
        let process = self.random.usize(..PROCESSES);
        let connection = network::with(|net| net.connections_of(process));
        let connection = self.random.choice(connection);
        let fate = network::with(|net| net.random_fate());
        match self.faults[self.random.usize(..self.faults.len())] {
            Fault::Cut => {
                connection.inspect(|number| network::with(|net| net.cut(*number, fate)));
            }
            Fault::CutAll => self.cut_all(process),
            Fault::StallConnection => {
                let time = self.random_stall();
                connection.inspect(|number| network::with(|net| net.stall_connection(*number, time)));
                (0..3).for_each(|_| self.plan(Self::acquire));
            }
            Fault::Stall => {
                let time = self.random_stall();
                network::with(|net| net.stall(process, time));
            }
            Fault::Refuse => self.refuse(process),
            Fault::Reject => {
                let errors = [
                    "LOADING Redis is loading the dataset in memory",
                    "READONLY You can't write against a read only replica.",
                    "TRYAGAIN Multiple keys request during rehashing of slot",
                    "OOM command not allowed when used memory > 'maxmemory'.",
                ];
                let (time, error) = (self.random_time(500), errors[self.random.usize(..errors.len())]);
                network::with(|net| net.reject(process, time, error));
            }
            Fault::EndInbox => self.end_inbox(process),
            Fault::BreakLock => {
                let key = self.random.usize(..KEYS);
                self.break_lock(key);
            }
            Fault::Restart => self.restart(),
            Fault::TurnAway => self.turn_away(process),
            Fault::SlowProcess => self.pause(process),
            Fault::IdleRuntime => self.pause_runtime(),
            Fault::EndRuntime => self.end_runtime(process),
        }
    }

    /// Mostly short.
    fn random_time(&mut self, longest_ms: u64) -> Duration {
        let longest = longest_ms >> self.random.u32(..5);
        Duration::from_millis(self.random.u64(..=longest.max(1)))
    }

    /// Often about as long as commands wait for their replies.
    fn random_stall(&mut self) -> Duration {
        match self.random.bool() {
            true => RESPONSE_TIMEOUT + self.random_time(1_500),
            false => self.random_time(8_000),
        }
    }

    /// Perhaps just after an extension was sent, which only the server knows of, for a lock that is given up then.
    fn refuse(&mut self, process: usize) {
        let time = self.random_time(4_000);
        let Some(number) = self.pick_guard().filter(|_| self.random.bool()) else {
            network::with(|net| net.refuse(process, time));
            return self.cut_all(process);
        };
        let process = lock(&self.ledger).guards[&number].who.process;
        let extending = self.extend_guard(number, Duration::from_secs(20));
        self.plan(move |world| {
            network::with(|net| {
                net.refuse(process, time);
                let connections = net.connections_of(process);
                connections
                    .into_iter()
                    .for_each(|number| net.cut(number, Fate::Run));
            });
            world.plan(move |world| {
                extending.inspect(|task| task.end());
                world.give_up_guard(number, false);
            });
        });
    }

    /// Perhaps just after a grant was put into it, and before the next request.
    fn end_inbox(&mut self, process: usize) {
        if self.random.bool() {
            let key = self.random.usize(..KEYS);
            self.break_lock(key);
            network::with(Net::run);
        }
        network::with(|net| net.end_inbox(process));
        self.acquire();
    }

    fn cut_all(&mut self, process: usize) {
        for number in network::with(|net| net.connections_of(process)) {
            network::with(|net| {
                let fate = net.random_fate();
                net.cut(number, fate);
            });
        }
    }

    fn break_lock(&mut self, key: usize) {
        let key = key_name(key);
        tell(|| format!("{key} is broken"));
        let mut ledger = lock(&self.ledger);
        network::with(|net| {
            let (holders, _) = net.server.lock(key.as_bytes());
            ledger.broken.extend(holders.iter().map(|holder| holder.fence()));
            ledger
                .unlucky
                .extend(holders.iter().map(|holder| holder.owner().to_vec()));
            net.server.lose(key.as_bytes());
        });
    }

    /// All locks are lost, as in a server that restarts without its data, and so are all connections.
    fn restart(&mut self) {
        (0..KEYS).for_each(|key| self.break_lock(key));
        (0..PROCESSES).for_each(|process| self.cut_all(process));
        let mut ledger = lock(&self.ledger);
        ledger
            .guards
            .values_mut()
            .for_each(|holding| holding.shows = true);
    }

    /// Those who wait are told to ask elsewhere: now, and perhaps also those who come next. The lock itself may be gone, too,
    /// so that whoever asks first gets it.
    fn turn_away(&mut self, process: usize) {
        let key = self.random.usize(..KEYS);
        network::with(|net| net.turn_away(key_name(key).as_bytes()));
        if self.random.bool() {
            self.break_lock(key);
        }
        if self.random.bool() {
            let time = self.random_time(1_000);
            network::with(|net| net.turn_away_all(time));
            self.end_inbox(process);
        }
    }

    /// A process is slow for a while: longer than a lease, sometimes.
    fn pause(&mut self, process: usize) {
        let time = match self.random.u32(..40) {
            0 => LONGEST_LEASE + Duration::from_secs(1),
            _ => self.random_time(5_000),
        };
        if time > LONGEST_LEASE {
            self.rests_until = elapsed() + time;
        }
        tell(|| format!("process {process} is slow for {time:?}"));
        pause_for(self.processes[process].runtimes.clone(), time);
    }

    fn pause_runtime(&mut self) {
        if let Some((process, runtime)) = self.pick_runtime() {
            let time = self.random_time(5_000);
            tell(|| format!("a runtime of process {process} is idle for {time:?}"));
            pause_for(vec![runtime], time);
        }
    }

    /// A runtime ends. The next one may have its id.
    fn end_runtime(&mut self, process: usize) {
        let number = self.random.usize(1..=RUNTIMES);
        let runtime = &mut self.processes[process].runtimes[number];
        if runtime.is_paused() {
            return;
        }
        tell(|| format!("runtime {number} of process {process} ends"));
        let ended = std::mem::replace(runtime, Runtime::new(process * (RUNTIMES + 1) + number));
        ended.end();
        // Its guards are used in the next one.
        let mut ledger = lock(&self.ledger);
        ledger.counts.note("ended runtime");
        let holdings = ledger.guards.values_mut();
        for holding in holdings.filter(|holding| Arc::ptr_eq(&holding.who.runtime, &ended)) {
            holding.who.runtime = Arc::clone(runtime);
        }
    }
}

/// In real time, whatever becomes of the world.
fn pause_for(runtimes: Vec<Arc<Runtime>>, time: Duration) {
    runtimes.iter().for_each(|runtime| runtime.pause());
    tokio::spawn(async move {
        sleep(time).await;
        runtimes.iter().for_each(|runtime| runtime.resume());
    });
}
