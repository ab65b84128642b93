//! Lost updates: holders read, modify and write back a set under a mutex, and no update may be lost.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use dlock_testkit::{Server, Signal, signal};

use super::ScenarioRun;
use crate::clients::holder::{self, Holder, HolderConfig};
use crate::clients::{ConnCutter, Fencing, Gate, Store};
use crate::history::{History, Recorder};
use crate::servers;

const THREADS: u64 = 4;
const PROCESSES: u64 = 2;
/// All faults are much shorter.
const LONG_LEASE_MS: u64 = 5_000;
const SHORT_LEASE_MS: u64 = 60;
const THINK_MS: u64 = 8;

/// Holders respect their deadlines; the store checks no fences.
pub fn mutex_alone(run: &mut ScenarioRun) -> Vec<History> {
    let mut setup = Setup::start(run, Fencing::Off, LONG_LEASE_MS);
    for _ in 0..run.count {
        run.pause(5..=30);
        match run.rng.u8(..3) {
            0 => setup.disconnect_any_holder(run),
            1 => setup.stop_server(run),
            _ => {
                setup.recorder.event("CLIENT KILL of all");
                setup
                    .locks
                    .client()
                    .ask::<i64>("CLIENT KILL TYPE normal SKIPME yes");
            }
        }
    }
    setup.finish()
}

/// Holders (threads and processes) are paused past the end of their lease and then write; the store rejects stale
/// fences.
pub fn fences(run: &mut ScenarioRun) -> Vec<History> {
    stopped_holders(run, Fencing::On)
}

/// The same without fencing: some updates must be lost.
pub fn stopped_without_fences(run: &mut ScenarioRun) -> Vec<History> {
    stopped_holders(run, Fencing::Off)
}

fn stopped_holders(run: &mut ScenarioRun, fencing: Fencing) -> Vec<History> {
    let mut setup = Setup::start(run, fencing, SHORT_LEASE_MS);
    for _ in 0..run.count {
        run.pause(5..=30);
        if run.rng.bool() {
            setup.stop_any_thread(run);
        } else {
            setup.stop_any_process(run);
        }
    }
    setup.finish()
}

/// A server with the lock, a server with the store, and the holders.
struct Setup {
    locks: Server,
    store: Server,
    recorder: Recorder,
    stop: Arc<AtomicBool>,
    threads: Vec<HolderThread>,
    processes: Vec<HolderProcess>,
}

struct HolderThread {
    gate: Gate,
    cutter: ConnCutter,
    thread: JoinHandle<()>,
}

impl Setup {
    fn start(run: &mut ScenarioRun, fencing: Fencing, lease_ms: u64) -> Self {
        let (locks, store) = (Server::start(), Server::without_module(""));
        let mut setup = Self {
            recorder: Recorder::default(),
            stop: Arc::default(),
            threads: Vec::new(),
            processes: Vec::new(),
            locks,
            store,
        };
        for number in 1..=THREADS + PROCESSES {
            let config = HolderConfig {
                locks: setup.locks.port(),
                store: setup.store.port(),
                fencing,
                lease_ms,
                think_ms: THINK_MS,
                number,
            };
            let seed = run.rng.u64(..);
            if number <= THREADS {
                setup.threads.push(setup.thread(config, seed));
            } else {
                setup
                    .processes
                    .push(HolderProcess::start(&run.program, config, seed, &setup.recorder));
            }
        }
        setup
    }

    fn thread(&self, config: HolderConfig, seed: u64) -> HolderThread {
        let (gate, recorder, stop) = (Gate::default(), self.recorder.clone(), self.stop.clone());
        let mut holder = Holder::new(config, recorder.clone(), gate.clone(), seed);
        let cutter = holder.lock_client().route().cutter.clone();
        let thread = thread::spawn(move || holder.run(&stop, |write| recorder.lock().writes.push(write)));
        HolderThread { gate, cutter, thread }
    }

    fn disconnect_any_holder(&self, run: &mut ScenarioRun) {
        let holder = &self.threads[run.rng.usize(..self.threads.len())];
        self.recorder
            .event("a client loses its connection to the lock server");
        holder.cutter.cut();
    }

    fn stop_server(&self, run: &mut ScenarioRun) {
        self.recorder.event("SIGSTOP of the server for a moment");
        self.locks.stop();
        run.pause(1..=LONG_LEASE_MS / 50);
        self.locks.resume();
    }

    fn stop_any_thread(&self, run: &mut ScenarioRun) {
        let holder = &self.threads[run.rng.usize(..self.threads.len())];
        self.recorder
            .event("a holder thread is paused between read and write");
        holder.gate.close();
        run.pause(SHORT_LEASE_MS / 2..=SHORT_LEASE_MS * 3);
        holder.gate.open();
    }

    fn stop_any_process(&self, run: &mut ScenarioRun) {
        let process = &self.processes[run.rng.usize(..self.processes.len())];
        self.recorder.event("SIGSTOP of a holder process");
        signal(process.child.id(), Signal::STOP);
        run.pause(SHORT_LEASE_MS / 2..=SHORT_LEASE_MS * 3);
        signal(process.child.id(), Signal::CONT);
    }

    fn finish(&mut self) -> Vec<History> {
        self.stop.store(true, Ordering::Relaxed);
        for holder in self.threads.drain(..) {
            holder.thread.join().expect("holders do not panic");
        }
        self.processes.drain(..).for_each(HolderProcess::finish);
        // Without fencing the store ignores the fence and returns all elements.
        let stored = Store::open(self.store.port(), Fencing::Off).read(0);
        self.recorder.lock().stored = stored;
        servers::record_final_state(&mut self.locks, &self.recorder);
        vec![self.recorder.history()]
    }
}

/// A holder in a separate process, killed on drop.
struct HolderProcess {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

impl HolderProcess {
    fn start(program: &Path, config: HolderConfig, seed: u64, recorder: &Recorder) -> Self {
        let mut child = Command::new(program)
            .args(config.to_args(seed))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
        let output = child.stdout.take().expect("stdout is a pipe");
        let recorder = recorder.clone();
        let reader = thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines {
                let write = holder::parse_line(&line).expect("holders print only writes");
                recorder.lock().writes.push(write);
            }
        });
        Self {
            child,
            reader: Some(reader),
        }
    }

    /// Stops it and reads all its output.
    fn finish(mut self) {
        drop(self.child.stdin.take());
        let ended = self.child.wait().expect("a child can be waited for");
        assert!(ended.success(), "a holder process failed: {ended}");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("every line is a write");
        }
    }
}

impl Drop for HolderProcess {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
