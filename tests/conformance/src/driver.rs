//! A driver as a process: commands go in, answers and events come out, and everything is recorded with its time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::{Proxy, Signal, signal};
use serde_json::{Map, Value, json};

use crate::launch::Launch;
use crate::outcome::{Outcome, within};

/// How long a driver may take to start: interpreters are slow on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
const EXIT_LIMIT: Duration = Duration::from_secs(15);
/// How much of its errors is shown.
const SHOWN_STDERR: usize = 4_000;

/// A running driver, in front of its own network. It is killed when dropped.
pub struct Driver {
    child: Child,
    stdin: Option<ChildStdin>,
    stderr: File,
    output: Arc<Output>,
    pub proxy: Proxy,
    /// The commands, of which the first has the number 1.
    sent: Vec<Sent>,
    /// When it was stopped or killed first: from then on it cannot know what it holds.
    pub stunned: Option<Instant>,
    is_killed: bool,
    has_ended: bool,
}

/// A command that was sent.
pub struct Sent {
    pub at: Instant,
    pub command: Map<String, Value>,
}

/// What a driver has written.
#[derive(Clone, Debug, Default)]
pub struct Received {
    hello: Option<Value>,
    pub answers: BTreeMap<u64, (Instant, Value)>,
    /// Locks that it was told are lost.
    pub lost: BTreeMap<u64, Instant>,
    /// What the protocol does not allow.
    violations: Vec<String>,
}

#[derive(Default)]
struct Output {
    received: Mutex<Received>,
    changed: Condvar,
}

impl Driver {
    /// Starts a driver that finds the server at `server_port` behind a network of its own.
    pub fn start(launch: &Launch, server_port: u16) -> Outcome<Self> {
        let proxy = Proxy::to(server_port);
        let stderr = tempfile::tempfile().map_err(|error| error.to_string())?;
        let mut command = launch.command(&proxy.url());
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().map_err(|error| error.to_string())?)
            .spawn();
        let mut child = child.map_err(|error| format!("cannot run {}: {error}", launch.program.display()))?;
        let output = Arc::new(Output::default());
        let stdout = child.stdout.take().expect("it is a pipe");
        thread::spawn({
            let output = Arc::clone(&output);
            move || output.read(stdout)
        });
        Ok(Self {
            stdin: child.stdin.take(),
            child,
            stderr,
            output,
            proxy,
            sent: Vec::new(),
            stunned: None,
            is_killed: false,
            has_ended: false,
        })
    }

    /// Its first line, which says what it is.
    pub fn hello(&mut self) -> Outcome<Value> {
        let output = Arc::clone(&self.output);
        let hello = within(START_LIMIT, || {
            output
                .received()
                .hello
                .clone()
                .ok_or("the driver has not started".to_owned())
        });
        hello.map_err(|error| format!("{error}\n{}", self.stderr()))
    }

    /// Sends a command and returns its number.
    pub fn send(&mut self, mut command: Map<String, Value>) -> Outcome<u64> {
        let id = self.sent.len() as u64 + 1;
        command.insert("id".into(), json!(id));
        let line = format!("{}\n", Value::Object(command.clone()));
        self.sent.push(Sent {
            at: Instant::now(),
            command,
        });
        let stdin = self.stdin.as_mut().ok_or("its input has ended")?;
        let written = stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush());
        written.map_err(|error| format!("the driver does not read: {error}\n{}", self.stderr()))?;
        Ok(id)
    }

    /// All commands that were sent, with their numbers.
    pub fn commands(&self) -> impl Iterator<Item = (u64, &Sent)> {
        (1..).zip(&self.sent)
    }

    /// The answer to a command, once it is there.
    pub fn answer(&mut self, id: u64, limit: Duration) -> Outcome<(Instant, Value)> {
        let found = self
            .output
            .wait_for(limit, |received| received.answers.get(&id).cloned());
        found.ok_or_else(|| self.missing("no answer", limit))
    }

    /// The answers to some of these commands, once there are any; none if there are none in time.
    pub fn any_answer(&self, of: &BTreeSet<u64>, limit: Duration) -> Vec<(u64, Value)> {
        let found = self.output.wait_for(limit, |received| {
            let answered = of
                .iter()
                .filter_map(|id| Some((*id, received.answers.get(id)?.1.clone())));
            Some(answered.collect::<Vec<_>>()).filter(|answered| !answered.is_empty())
        });
        found.unwrap_or_default()
    }

    /// When it told that a lock is lost, once it has.
    pub fn lost(&mut self, of: u64, limit: Duration) -> Outcome<Instant> {
        let found = self
            .output
            .wait_for(limit, |received| received.lost.get(&of).copied());
        found.ok_or_else(|| self.missing("no loss was told", limit))
    }

    fn missing(&mut self, what: &str, limit: Duration) -> String {
        let received = self.received();
        let stderr = self.stderr();
        format!(
            "{what} within {limit:?}; {}\n{stderr}",
            received.violations.join("; ")
        )
    }

    /// A copy of what it has written.
    pub fn received(&self) -> Received {
        self.output.received().clone()
    }

    /// The numbers of the commands that have no answer.
    pub fn unanswered(&self) -> Vec<u64> {
        let received = self.output.received();
        let ids = self.commands().map(|(id, _)| id);
        ids.filter(|id| !received.answers.contains_key(id)).collect()
    }

    /// What it has written that the protocol does not allow.
    pub fn violations(&self) -> Vec<String> {
        let received = self.output.received();
        let mut violations = received.violations.clone();
        let unasked = received.answers.range(self.sent.len() as u64 + 1..);
        violations.extend(unasked.map(|(_, (_, answer))| format!("no command: {answer}")));
        violations
    }

    pub fn signal(&mut self, sent: Signal) {
        if sent == Signal::STOP || sent == Signal::KILL {
            self.stunned.get_or_insert(Instant::now());
        }
        self.is_killed |= sent == Signal::KILL;
        self.has_ended |= self.is_killed;
        signal(self.child.id(), sent);
    }

    /// Whether the kit has killed it, or it has exited as it should.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub fn is_killed(&self) -> bool {
        self.is_killed
    }

    /// Closes its input.
    pub fn end_input(&mut self) {
        self.stdin = None;
    }

    /// It must exit with 0.
    pub fn expect_exit(&mut self) -> Outcome {
        let child = &mut self.child;
        let status: Outcome<ExitStatus> = within(EXIT_LIMIT, || match child.try_wait() {
            Ok(Some(status)) => Ok(status),
            _ => Err("the driver has not exited".to_owned()),
        });
        let status = status.map_err(|error| format!("{error}\n{}", self.stderr()))?;
        self.has_ended = true;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the driver exited with {status}\n{}", self.stderr()))
        }
    }

    /// The end of what it wrote to stderr.
    pub fn stderr(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = self
            .stderr
            .rewind()
            .and_then(|()| self.stderr.read_to_end(&mut bytes));
        let from = bytes.len().saturating_sub(SHOWN_STDERR);
        match read {
            Ok(0) => String::new(),
            Ok(_) => format!("stderr: {}", String::from_utf8_lossy(&bytes[from..])),
            Err(error) => format!("stderr: {error}"),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // An error means that it has exited already. A stopped process is killed, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Output {
    fn received(&self) -> MutexGuard<'_, Received> {
        self.received
            .lock()
            .expect("no thread panics while it holds this")
    }

    fn wait_for<T>(&self, limit: Duration, find: impl Fn(&Received) -> Option<T>) -> Option<T> {
        let end = Instant::now() + limit;
        let mut received = self.received();
        loop {
            if let Some(found) = find(&received) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(received, left);
            received = waited.expect("no thread panics while it holds this").0;
        }
    }

    fn read(&self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let at = Instant::now();
            let mut received = self.received();
            if let Err(violation) = received.take(&line, at) {
                received.violations.push(format!("{violation}: {line}"));
            }
            drop(received);
            self.changed.notify_all();
        }
    }
}

impl Received {
    fn take(&mut self, line: &str, at: Instant) -> Outcome {
        let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
        if self.hello.is_none() {
            self.hello = Some(value);
            return Ok(());
        }
        let earlier = match (value["id"].as_u64(), &value["event"], value["of"].as_u64()) {
            (Some(id), _, _) => self.answers.insert(id, (at, value)).map(drop),
            (None, event, Some(of)) if *event == "lost" => self.lost.insert(of, at).map(drop),
            _ => return Err("neither an answer nor an event".into()),
        };
        match earlier {
            None => Ok(()),
            Some(()) => Err("told twice".into()),
        }
    }
}
