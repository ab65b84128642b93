//! Processes of many waiters each, and what happens to them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dlock_testkit::{Proxy, Signal, signal, wait_for};

use super::{ScenarioRun, network};
use crate::clients::inbox::process::{Instruction, WaiterConfig};
use crate::clients::inbox::{InboxTimes, JournalReader, Mistake, NodeAddress};
use crate::clients::{LockClient, Route};
use crate::history::{Acquire, Limit, Micros, Recorder, Reply, ServerTerm, Wait, now};

const PROCESSES: usize = 4;
const WAITERS: u32 = 200;
/// Shorter than a lease, and longer.
const TTLS_MS: [u64; 4] = [150, 150, 1_000, 2_000];
pub(super) const LONGEST_TTL_MS: u64 = 2_000;
/// For how much longer than it blocks a call of GRANTS waits for its reply.
const PATIENCE_MS: u64 = 300;
/// For a busy machine.
const SLACK_MS: u64 = 5_000;
/// Of the one that acquires each lock at the end.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Processes of waiters that reach each server through two networks of their own.
pub struct Crowd {
    processes: Vec<Process>,
    servers: Vec<ServerTerm>,
    keys: Vec<String>,
    lease_ms: u64,
    mistake: Mistake,
    recorder: Recorder,
    program: PathBuf,
    started: u32,
}

/// A process, killed on drop.
struct Process {
    child: Child,
    input: ChildStdin,
    reader: Option<JoinHandle<()>>,
    networks: Vec<Networks>,
    /// Closed, but their ports stay taken: the process may still try to connect.
    closed: Vec<Networks>,
    is_stopped: bool,
    is_resting: bool,
}

/// Between a process and a server.
struct Networks {
    server: ServerTerm,
    requests: Proxy,
    reader: Proxy,
}

impl Crowd {
    /// Waiters for these locks. The first server has all of them, or is of a cluster with the others.
    pub fn start(
        run: &mut ScenarioRun,
        servers: Vec<ServerTerm>,
        keys: Vec<String>,
        lease_ms: u64,
        mistake: Mistake,
        recorder: &Recorder,
    ) -> Self {
        let mut crowd = Self {
            processes: Vec::new(),
            servers,
            keys,
            lease_ms,
            mistake,
            recorder: recorder.clone(),
            program: run.program.clone(),
            started: 0,
        };
        recorder.lock().longest_stall = Some(crowd.longest_hold_of_nobody_ms() * 1_000);
        for _ in 0..PROCESSES {
            crowd.start_process(run);
        }
        crowd.wait_until_all_wait();
        crowd
    }

    /// Until many requests of each process have been queued.
    fn wait_until_all_wait(&self) {
        wait_for("the processes to wait for locks", || {
            let history = self.recorder.lock();
            (1..=self.started).all(|n| {
                let process = format!("p{n}.");
                let queued = history
                    .ops
                    .iter()
                    .filter(|op| matches!(op.reply, Reply::Queued(_)) && op.owner.starts_with(&process));
                queued.count() > WAITERS as usize / 4
            })
        });
    }

    /// A lease, a time to live, and the call of GRANTS before it, on a busy machine.
    fn longest_hold_of_nobody_ms(&self) -> u64 {
        self.lease_ms + LONGEST_TTL_MS * 3 / 2 + SLACK_MS
    }

    fn start_process(&mut self, run: &mut ScenarioRun) {
        self.started += 1;
        let ttl = TTLS_MS[run.rng.usize(..TTLS_MS.len())];
        let config = WaiterConfig {
            name: format!("p{}", self.started),
            seed: run.rng.u64(..),
            times: InboxTimes {
                block: ttl / 2,
                ttl,
                patience: PATIENCE_MS,
            },
            lease_ms: self.lease_ms,
            tasks: WAITERS,
            mistake: self.mistake,
            keys: self.keys.clone(),
        };
        let mut child = Command::new(&self.program)
            .args(config.to_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.program.display()));
        let output = child.stdout.take().expect("stdout is a pipe");
        let journal = JournalReader::new(config.name, self.recorder.clone());
        let mut process = Process {
            input: child.stdin.take().expect("stdin is a pipe"),
            reader: Some(thread::spawn(move || read(output, journal))),
            child,
            networks: Vec::new(),
            closed: Vec::new(),
            is_stopped: false,
            is_resting: false,
        };
        process.connect_to(&self.servers);
        self.processes.push(process);
    }

    /// Something happens to one process. Others that were stopped or rest may go on.
    pub fn one_fault(&mut self, run: &mut ScenarioRun) {
        for process in &mut self.processes {
            if run.rng.bool() {
                process.go_on(&self.recorder);
            }
        }
        let n = run.rng.usize(..self.processes.len());
        let process = &mut self.processes[n];
        match run.rng.u8(..8) {
            0 => {
                self.recorder
                    .event(format!("kill -9 of process {}", process.child.id()));
                self.processes.swap_remove(n).kill();
                self.start_process(run);
            }
            1 | 2 => process.stop(&self.recorder),
            3 => {
                self.recorder
                    .event(format!("process {} rests", process.child.id()));
                process.is_resting = true;
                process.tell(&Instruction::Rest);
            }
            _ => {
                let Networks { requests, reader, .. } =
                    &process.networks[run.rng.usize(..self.servers.len())];
                let (network, name) = if run.rng.bool() {
                    (requests, "requests")
                } else {
                    (reader, "the reader")
                };
                let process = process.child.id();
                self.recorder
                    .event(format!("to the network of {name} of process {process}:"));
                network::one_fault(run, network, &self.recorder);
            }
        }
    }

    /// Stops one process for a while.
    pub fn stop_one(&mut self, run: &mut ScenarioRun, ms: RangeInclusive<u64>) {
        let process = &mut self.processes[run.rng.usize(..PROCESSES)];
        process.stop(&self.recorder);
        run.pause(ms);
        process.go_on(&self.recorder);
    }

    /// A server was killed: nothing connects to where it was.
    pub fn close_networks(&mut self) {
        self.processes.iter_mut().for_each(Process::close_networks);
    }

    /// All go on with these servers.
    pub fn connect_to(&mut self, servers: Vec<ServerTerm>) {
        self.servers = servers;
        for process in &mut self.processes {
            process.connect_to(&self.servers);
        }
    }

    /// Without faults, all requests are answered. Then each lock becomes free, also of those that were killed.
    pub fn finish(mut self, route: &Route) {
        for process in &mut self.processes {
            process.networks.iter().for_each(Networks::heal);
            process.go_on(&self.recorder);
        }
        for process in &mut self.processes {
            process.tell(&Instruction::Finish);
        }
        self.processes.drain(..).for_each(Process::finish);
        let mut last = LockClient::new(
            "last".into(),
            route.clone().into(),
            Recorder::default(),
            REPLY_TIMEOUT,
        );
        let end = now() + self.longest_hold_of_nobody_ms() * 1_000;
        for key in &self.keys {
            if !acquire(&mut last, key, end) {
                self.recorder.lock().never_free.push(key.clone());
            }
        }
    }
}

fn acquire(client: &mut LockClient, key: &str, end: Micros) -> bool {
    let acquire = Acquire {
        lease_ms: 1_000,
        limit: Limit::Of(1),
        wait: Wait::Block {
            timeout_ms: (end.saturating_sub(now()) / 1_000).max(1),
        },
        reqid: None,
    };
    let granted = client
        .acquire(key, acquire)
        .is_some_and(|op| matches!(op.reply, Reply::Granted { .. }));
    client.release(key, None, true, None);
    granted
}

impl Process {
    fn connect_to(&mut self, servers: &[ServerTerm]) {
        self.close_networks();
        self.networks = servers.iter().copied().map(Networks::to).collect();
        let addresses = self.networks.iter().map(Networks::address);
        let instruction = Instruction::Nodes(addresses.collect());
        self.tell(&instruction);
    }

    fn close_networks(&mut self) {
        for networks in self.networks.drain(..) {
            networks.close();
            self.closed.push(networks);
        }
    }

    fn tell(&mut self, instruction: &Instruction) {
        writeln!(self.input, "{}", instruction.to_line()).expect("the process runs");
    }

    fn stop(&mut self, recorder: &Recorder) {
        recorder.event(format!("SIGSTOP of process {}", self.child.id()));
        signal(self.child.id(), Signal::STOP);
        self.is_stopped = true;
    }

    fn go_on(&mut self, recorder: &Recorder) {
        if std::mem::take(&mut self.is_stopped) {
            recorder.event(format!("SIGCONT of process {}", self.child.id()));
            signal(self.child.id(), Signal::CONT);
        }
        if std::mem::take(&mut self.is_resting) {
            self.tell(&Instruction::Work);
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.join();
    }

    fn finish(mut self) {
        let ended = self.child.wait().expect("a child can be waited for");
        assert!(ended.success(), "a waiter process failed: {ended}");
        self.join();
    }

    fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("every line is one of a journal");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Networks {
    fn to(server: ServerTerm) -> Self {
        Self {
            server,
            requests: Proxy::to(server.port),
            reader: Proxy::to(server.port),
        }
    }

    fn address(&self) -> NodeAddress {
        NodeAddress {
            server: self.server,
            requests: self.requests.port(),
            reader: self.reader.port(),
        }
    }

    fn heal(&self) {
        network::heal(&self.requests);
        network::heal(&self.reader);
    }

    fn close(&self) {
        for network in [&self.requests, &self.reader] {
            network.refuse(true);
            network.cut();
        }
    }
}

/// Reads the journal of a process to its end. What was killed may end in the middle of a line.
fn read(output: ChildStdout, mut journal: JournalReader) {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    while output.read_line(&mut line).is_ok_and(|length| length > 0) && line.ends_with('\n') {
        let known = journal.line(line.trim_end_matches('\n'));
        known.unwrap_or_else(|| panic!("a waiter printed: {line}"));
        line.clear();
    }
    journal.end();
}
