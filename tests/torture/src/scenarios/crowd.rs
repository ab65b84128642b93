//! Processes with many tasks each, and what happens to them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dlock_testkit::{Proxy, Signal, signal, wait_for};

use super::{ScenarioRun, network};
use crate::clients::service::{Instruction, ServiceConfig};
use crate::clients::{LockClient, Promise, Route};
use crate::history::{Acquire, Limit, Micros, Recorder, Reply, Wait, now};

const PROCESSES: usize = 4;
const TASKS: u64 = 200;
/// One in so many processes that were stopped or rest goes on at the next fault.
const GOES_ON_ONE_IN: u8 = 3;
/// An inbox of the Rust client and the call before it.
const INBOX_HAS_ENDED: Duration = Duration::from_secs(8);
/// That and a lease, on a busy machine.
const ALL_HAS_ENDED: Duration = Duration::from_secs(20);
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Processes that reach the server through a network of their own each, or the nodes of a cluster directly.
pub struct Crowd {
    processes: Vec<Process>,
    ports: Vec<u16>,
    keys: Vec<String>,
    lease_ms: u64,
    recorder: Recorder,
    program: PathBuf,
    started: usize,
}

/// A process, killed on drop.
struct Process {
    child: Child,
    input: ChildStdin,
    reader: Option<JoinHandle<()>>,
    network: Option<Proxy>,
    is_stopped: bool,
    is_resting: bool,
}

impl Crowd {
    /// Processes that acquire these locks, of a server or of a cluster of servers.
    pub fn start(
        run: &mut ScenarioRun,
        ports: Vec<u16>,
        keys: Vec<String>,
        lease_ms: u64,
        recorder: &Recorder,
    ) -> Self {
        let mut crowd = Self {
            processes: Vec::new(),
            ports,
            keys,
            lease_ms,
            recorder: recorder.clone(),
            program: run.program.clone(),
            started: 0,
        };
        for _ in 0..PROCESSES {
            crowd.start_process(run);
        }
        wait_for("all processes to be granted locks", || {
            let history = recorder.lock();
            let names = (1..=PROCESSES).map(|n| format!("p{n}."));
            let mut names = names.map(|name| history.ops.iter().any(|op| op.owner.starts_with(&name)));
            names.all(|has_locks| has_locks)
        });
        crowd
    }

    fn start_process(&mut self, run: &mut ScenarioRun) {
        self.started += 1;
        let network = match *self.ports {
            [port] => Some(Proxy::to(port)),
            _ => None,
        };
        let ports = network.as_ref().map(|network| vec![network.port()]);
        let config = ServiceConfig {
            name: format!("p{}", self.started),
            seed: run.rng.u64(..),
            lease_ms: self.lease_ms,
            tasks: TASKS,
            ports: ports.unwrap_or_else(|| self.ports.clone()),
            keys: self.keys.clone(),
        };
        let mut child = Command::new(&self.program)
            .args(config.to_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.program.display()));
        let output = child.stdout.take().expect("stdout is a pipe");
        let recorder = self.recorder.clone();
        self.processes.push(Process {
            input: child.stdin.take().expect("stdin is a pipe"),
            reader: Some(thread::spawn(move || read(output, &recorder))),
            child,
            network,
            is_stopped: false,
            is_resting: false,
        });
    }

    /// Something happens to one process. Others that were stopped or rest may go on.
    pub fn one_fault(&mut self, run: &mut ScenarioRun) {
        for process in &mut self.processes {
            if run.rng.u8(..GOES_ON_ONE_IN) == 0 {
                process.go_on(&self.recorder);
            }
        }
        let n = run.rng.usize(..self.processes.len());
        let process = &mut self.processes[n];
        let id = process.child.id();
        match (run.rng.u8(..8), &process.network) {
            (0, _) => {
                self.recorder.event(format!("kill -9 of process {id}"));
                self.processes.swap_remove(n).kill();
                self.start_process(run);
            }
            (1, _) => {
                self.recorder.event(format!("process {id} rests"));
                process.is_resting = true;
                process.tell(Instruction::Rest);
            }
            (2 | 3, _) => process.stop(&self.recorder),
            // To nodes of a cluster, something happens itself.
            (_, None) => {}
            (_, Some(network)) => {
                self.recorder.event(format!("to the network of process {id}:"));
                network::one_fault(run, network, &self.recorder);
            }
        }
    }

    /// What a process had waited for is asked for again, if it is still wanted.
    pub fn end_inbox_of_one(&mut self) {
        self.processes[0].stop(&self.recorder);
        thread::sleep(INBOX_HAS_ENDED);
        self.processes[0].go_on(&self.recorder);
    }

    /// A server was killed: nothing connects to where it was.
    pub fn disconnect(&self) {
        for network in self.networks() {
            network.refuse(true);
            network.cut();
        }
    }

    /// All go on with this server.
    pub fn connect_to(&mut self, port: u16) {
        self.ports = vec![port];
        for network in self.networks() {
            network.forward_to(port);
            network.refuse(false);
            network.cut();
        }
    }

    fn networks(&self) -> impl Iterator<Item = &Proxy> {
        let processes = self.processes.iter();
        processes.filter_map(|process| process.network.as_ref())
    }

    /// Without faults, all requests are answered. Then each lock becomes free, also of those that were killed.
    pub fn finish(mut self, route: &Route) {
        self.networks().for_each(network::heal);
        for process in &mut self.processes {
            process.go_on(&self.recorder);
            process.tell(Instruction::Finish);
        }
        self.processes.drain(..).for_each(Process::finish);
        let mut last = LockClient::new(
            "last".into(),
            route.clone().into(),
            Recorder::default(),
            REPLY_TIMEOUT,
        );
        let end = now() + ALL_HAS_ENDED.as_micros() as Micros;
        for key in &self.keys {
            if !acquire(&mut last, key, end) {
                let what = format!("nobody holds {key}, but it is not free");
                self.recorder.lock().unfinished.push(what);
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
    fn tell(&mut self, instruction: Instruction) {
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
            self.tell(Instruction::Work);
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("a child can be killed");
        self.join();
    }

    fn finish(mut self) {
        let ended = self.child.wait().expect("a child can be waited for");
        assert!(ended.success(), "a process failed: {ended}");
        self.join();
    }

    fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("every line is a promise");
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

/// Reads what a process prints to its end. What was killed may end in the middle of a line.
fn read(output: ChildStdout, recorder: &Recorder) {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    while output.read_line(&mut line).is_ok_and(|length| length > 0) && line.ends_with('\n') {
        let promise = Promise::parse(line.trim_end_matches('\n'));
        let promise = promise.unwrap_or_else(|| panic!("a process printed: {line}"));
        promise.record(recorder);
        line.clear();
    }
}
