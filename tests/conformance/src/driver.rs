//! A driver as a process: commands go in, answers and events come out, and everything is recorded with its time.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dlock_testkit::{Proxy, Signal, signal};
use serde_json::{Map, Value, json};

use crate::launch::Launch;
use crate::outcome::{Outcome, within};
use crate::output::{Output, Received};

/// How long a driver may take to start: interpreters are slow on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
const EXIT_LIMIT: Duration = Duration::from_secs(15);
/// How much of its errors is shown.
const SHOWN_STDERR: u64 = 4_000;

/// A running driver, in front of its own network. It is killed when dropped.
pub struct Driver {
    child: Child,
    stdin: Option<ChildStdin>,
    stderr: File,
    output: Arc<Output>,
    /// Its first line, which says what it is.
    pub hello: Value,
    pub proxy: Proxy,
    /// The commands, of which the first has the number 1.
    sent: Vec<Sent>,
    /// When it was stopped or killed first: from then on it cannot know what it holds.
    pub stopped_at: Option<Instant>,
    is_killed: bool,
    has_ended: bool,
}

/// A command that was sent.
pub struct Sent {
    pub at: Instant,
    pub command: Map<String, Value>,
}

impl Driver {
    /// Starts a driver that finds the server at `server_port` behind a network of its own, and reads its first line.
    pub fn start(launch: &Launch, server_port: u16) -> Outcome<Self> {
        let proxy = Proxy::to(server_port);
        proxy.record();
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
        let mut driver = Self {
            stdin: child.stdin.take(),
            child,
            stderr,
            output,
            hello: Value::Null,
            proxy,
            sent: Vec::new(),
            stopped_at: None,
            is_killed: false,
            has_ended: false,
        };
        let hello = driver
            .output
            .wait_for(START_LIMIT, |received| received.hello.clone());
        driver.hello = hello
            .ok_or_else(|| driver.failure(&format!("the driver has not started within {START_LIMIT:?}")))?;
        Ok(driver)
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
        written.map_err(|error| self.failure(&format!("the driver does not read: {error}")))?;
        Ok(id)
    }

    /// All commands that were sent, with their numbers.
    pub fn commands(&self) -> impl Iterator<Item = (u64, &Sent)> {
        (1..).zip(&self.sent)
    }

    /// The answer to a command, once it is there.
    pub fn answer(&self, id: u64, limit: Duration) -> Outcome<(Instant, Value)> {
        let found = self
            .output
            .wait_for(limit, |received| received.answers.get(&id).cloned());
        found.ok_or_else(|| self.failure(&format!("no answer within {limit:?}")))
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

    /// How it told that a lock is lost, once it has.
    pub fn lost(&self, of: u64, limit: Duration) -> Outcome<Value> {
        let found = self
            .output
            .wait_for(limit, |received| Some(received.lost.get(&of)?.1.clone()));
        found.ok_or_else(|| self.failure(&format!("no loss was told within {limit:?}")))
    }

    /// How it told first that it waits for this key, and how often, once it has.
    pub fn waiting(&self, key: &str, limit: Duration) -> Outcome<(Value, usize)> {
        let found = self.output.wait_for(limit, |received| {
            let told = received.waiting.get(key)?;
            Some((told.first()?.clone(), told.len()))
        });
        found.ok_or_else(|| {
            self.failure(&format!(
                "it was not told within {limit:?} that {key} is waited for"
            ))
        })
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

    /// The id of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&mut self, sent: Signal) {
        if sent == Signal::STOP || sent == Signal::KILL {
            self.stopped_at.get_or_insert(Instant::now());
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
        let status = status.map_err(|error| self.failure(&error))?;
        self.has_ended = true;
        if status.success() {
            Ok(())
        } else {
            Err(self.failure(&format!("the driver exited with {status}")))
        }
    }

    /// An error, with what else the driver has written.
    fn failure(&self, error: &str) -> String {
        let length = self.stderr.metadata().map_or(0, |file| file.len());
        let from = length.saturating_sub(SHOWN_STDERR);
        let mut stderr = vec![0; (length - from) as usize];
        if let Err(error) = self.stderr.read_exact_at(&mut stderr, from) {
            stderr = error.to_string().into();
        }
        let parts = [
            error.to_owned(),
            self.violations().join("; "),
            String::from_utf8_lossy(&stderr).into_owned(),
        ];
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // An error means that it has exited already. A stopped process is killed, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
