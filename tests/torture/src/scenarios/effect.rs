//! What locks are for: holders that read, think and write, and a store that loses nothing.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use dlock_testkit::Server;
use rustix::process::Signal;

use super::Job;
use crate::clients::holder::{self, Holder, Post};
use crate::clients::{Gate, Guard, Line, Store};
use crate::history::{History, Journal};
use crate::servers;

const THREADS: u64 = 4;
const PROCESSES: u64 = 2;
/// No fault here is longer than a fraction of it.
const LONG_LEASE_MS: u64 = 5_000;
const SHORT_LEASE_MS: u64 = 60;
const THINK_MS: u64 = 8;

/// Holders that keep to their deadlines, and a store without a guard.
pub fn mutex_alone(job: &mut Job) -> Vec<History> {
    let mut team = Team::start(job, Guard::None, LONG_LEASE_MS);
    for _ in 0..job.count {
        job.pause(5..=30);
        match job.rng.u8(..3) {
            0 => team.cut_any_line(job),
            1 => team.stop_server(job),
            _ => {
                team.journal.event("CLIENT KILL of all");
                team.locks
                    .client()
                    .ask::<i64>("CLIENT KILL TYPE normal SKIPME yes");
            }
        }
    }
    team.finish()
}

/// Holders, real processes among them, that are stopped for longer than their lease and then write; the
/// store refuses smaller fences.
pub fn fences(job: &mut Job) -> Vec<History> {
    stopped_holders(job, Guard::Fence)
}

/// The same with a store that takes every write: some must be lost.
pub fn stopped_without_fences(job: &mut Job) -> Vec<History> {
    stopped_holders(job, Guard::None)
}

fn stopped_holders(job: &mut Job, guard: Guard) -> Vec<History> {
    let mut team = Team::start(job, guard, SHORT_LEASE_MS);
    for _ in 0..job.count {
        job.pause(5..=30);
        if job.rng.bool() {
            team.stop_any_thread(job);
        } else {
            team.stop_any_process(job);
        }
    }
    team.finish()
}

/// Two servers and those who use them.
struct Team {
    locks: Server,
    store: Server,
    journal: Journal,
    stop: Arc<AtomicBool>,
    threads: Vec<Member>,
    processes: Vec<Process>,
}

struct Member {
    gate: Gate,
    line: Line,
    thread: JoinHandle<()>,
}

impl Team {
    fn start(job: &mut Job, guard: Guard, lease_ms: u64) -> Self {
        let (locks, store) = (Server::start(), Server::without_module(""));
        let mut team = Self {
            journal: Journal::default(),
            stop: Arc::default(),
            threads: Vec::new(),
            processes: Vec::new(),
            locks,
            store,
        };
        for number in 1..=THREADS + PROCESSES {
            let post = Post {
                locks: team.locks.port(),
                store: team.store.port(),
                guard,
                lease_ms,
                think_ms: THINK_MS,
                number,
            };
            let seed = job.rng.u64(..);
            if number <= THREADS {
                team.threads.push(team.thread(post, seed));
            } else {
                team.processes
                    .push(Process::start(&job.program, post, seed, &team.journal));
            }
        }
        team
    }

    fn thread(&self, post: Post, seed: u64) -> Member {
        let (gate, journal, stop) = (Gate::default(), self.journal.clone(), self.stop.clone());
        let mut holder = Holder::new(post, journal.clone(), gate.clone(), seed);
        let line = holder.actor().line();
        let thread = thread::spawn(move || holder.run(&stop, |write| journal.open().writes.push(write)));
        Member { gate, line, thread }
    }

    fn cut_any_line(&self, job: &mut Job) {
        let member = &self.threads[job.rng.usize(..self.threads.len())];
        self.journal.event("a client loses its connection to the locks");
        member.line.cut();
    }

    fn stop_server(&self, job: &mut Job) {
        self.journal.event("the server is stopped for a moment");
        servers::stop(&self.locks);
        job.pause(1..=LONG_LEASE_MS / 50);
        servers::resume(&self.locks);
    }

    fn stop_any_thread(&self, job: &mut Job) {
        let member = &self.threads[job.rng.usize(..self.threads.len())];
        self.journal
            .event("a holder is stopped between reading and writing");
        member.gate.close();
        job.pause(SHORT_LEASE_MS / 2..=SHORT_LEASE_MS * 3);
        member.gate.open();
    }

    fn stop_any_process(&self, job: &mut Job) {
        let process = &self.processes[job.rng.usize(..self.processes.len())];
        self.journal.event("SIGSTOP of a holder");
        servers::signal(process.child.id(), Signal::STOP);
        job.pause(SHORT_LEASE_MS / 2..=SHORT_LEASE_MS * 3);
        servers::signal(process.child.id(), Signal::CONT);
    }

    fn finish(&mut self) -> Vec<History> {
        self.stop.store(true, Ordering::Relaxed);
        for member in self.threads.drain(..) {
            member.thread.join().expect("a holder has no reason to panic");
        }
        self.processes.drain(..).for_each(Process::finish);
        // Of a store without a guard: it takes no note of the fence, and answers with all elements.
        let stored = Store::open(self.store.port(), Guard::None).read(0);
        self.journal.open().stored = stored;
        servers::settle(&mut self.locks, &self.journal);
        vec![self.journal.history()]
    }
}

/// A holder in a process of its own. Dropped, it is killed.
struct Process {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    fn start(program: &Path, post: Post, seed: u64, journal: &Journal) -> Self {
        let mut child = Command::new(program)
            .args(post.to_words(seed))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
        let output = child.stdout.take().expect("it is a pipe");
        let journal = journal.clone();
        let reader = thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines {
                let write = holder::parse_line(&line).expect("a holder prints writes only");
                journal.open().writes.push(write);
            }
        });
        Self {
            child,
            reader: Some(reader),
        }
    }

    /// Tells it to stop, and reads what it wrote to the end.
    fn finish(mut self) {
        drop(self.child.stdin.take());
        let ended = self.child.wait().expect("a child can be waited for");
        assert!(ended.success(), "a holder failed: {ended}");
        if let Some(reader) = self.reader.take() {
            reader.join().expect("all lines are writes");
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
