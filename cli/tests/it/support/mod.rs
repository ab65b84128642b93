//! What the tests of the tool share.

// Each test program uses a part of it.
#![allow(dead_code)]

pub mod terminal;

use std::io::{BufRead, BufReader, PipeReader, Read, Write, pipe};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};

use dlock_testkit::{Client, Server, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// So much a pipe holds.
const PIPE_BYTES: usize = 65_536;

/// The tool, told nothing by the environment.
pub fn dlock(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command
        .args(args)
        .env_remove("DLOCK_URL")
        .env_remove("REDISCLI_AUTH")
        .env_remove("NO_COLOR");
    command
}

/// The tool, told where a server is.
pub fn dlock_at(server: &Server, args: &[&str]) -> Command {
    dlock_on(server.port(), args)
}

pub fn dlock_on(port: u16, args: &[&str]) -> Command {
    let mut command = dlock(args);
    command.env("DLOCK_URL", format!("redis://127.0.0.1:{port}"));
    command
}

/// How a program ended, and what it said.
#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs the tool to its end.
#[track_caller]
pub fn outcome(command: &mut Command) -> Outcome {
    let output = command.stdin(Stdio::null()).output().expect("the tool runs");
    let outcome = Outcome {
        code: output.status.code().expect("the tool ends by itself"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    };
    assert!(!outcome.err.contains("panicked"), "{outcome:?}");
    outcome
}

/// What is printed for programs.
#[track_caller]
pub fn json(server: &Server, args: &[&str]) -> Value {
    let told = outcome(&mut dlock_at(server, &[args, &["--json"]].concat()));
    serde_json::from_str(&told.out).unwrap_or_else(|error| panic!("{error}: {told:?}"))
}

pub fn names(locks: &Value) -> Vec<&str> {
    let locks = locks.as_array().expect("an array");
    locks
        .iter()
        .map(|lock| lock["name"].as_str().expect("a name"))
        .collect()
}

/// The tool at work. Dropped, it is killed.
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: Option<JoinHandle<String>>,
    /// Full, and read by nobody.
    unread: Option<PipeReader>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the tool runs");
        let mut errors = child.stderr.take().expect("a pipe");
        let read = move || {
            let mut text = String::new();
            errors.read_to_string(&mut text).expect("text");
            text
        };
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            errors: Some(thread::spawn(read)),
            unread: None,
            child,
        }
    }

    /// Its standard error is a pipe that takes nothing more, and that nobody reads.
    pub fn start_unheard(command: &mut Command) -> Self {
        let (unread, mut full) = pipe().expect("the system has pipes");
        full.write_all(&[0; PIPE_BYTES]).expect("a pipe has so much room");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(full)
            .spawn()
            .expect("the tool runs");
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            errors: None,
            unread: Some(unread),
            child,
        }
    }

    /// Runs a shell script under the lock `job`, which ends when its input does, if not before.
    pub fn script(server: &Server, options: &[&str], script: &str) -> Self {
        Self::start(&mut script_at(server.port(), options, script))
    }

    /// The next line that is written.
    #[track_caller]
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    #[track_caller]
    pub fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line);
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn close_input(&mut self) {
        self.input = None;
    }

    pub fn has_ended(&mut self) -> bool {
        self.status().is_some()
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the state of a child can be read")
    }

    /// How it ends, with what is left of its output.
    #[track_caller]
    pub fn end(mut self) -> Outcome {
        wait_for("the end of the tool", || self.has_ended());
        let mut out = String::new();
        self.output.read_to_string(&mut out).expect("text");
        let status = self.status().expect("it has ended");
        let err = self
            .errors
            .take()
            .map_or_else(String::new, |errors| errors.join().expect("text"));
        assert!(!err.contains("panicked"), "{err}");
        Outcome {
            code: status.code().unwrap_or_else(|| panic!("{status}")),
            out,
            err,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `dlock run` of a shell script under the lock `job`.
pub fn script_at(port: u16, options: &[&str], script: &str) -> Command {
    let args = [&["run", "job"], options, &["--", "sh", "-c", script]].concat();
    dlock_on(port, &args)
}

/// Whether a process is there and not just a zombie.
pub fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until nobody holds a lock, and nobody waits for it.
#[track_caller]
pub fn wait_until_free(client: &mut Client, key: &str) {
    wait_for(&format!("{key} to be free"), || client.find_lock(key).is_none());
}
