//! Helpers of all tests.

pub mod terminal;

use std::io::{BufRead, BufReader, PipeReader, Read, Write, pipe};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use dlock_testkit::{Client, Server, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A shell command that waits forever without starting a program. A signal that arrives while dash starts a program by
/// vfork is lost, or stops only the child.
pub const WAIT: &str = "while :; do read line; done";

/// The capacity of a pipe.
const PIPE_BYTES: usize = 65_536;

/// `dlock` without the environment variables that it reads.
pub fn dlock(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dlock"));
    command
        .args(args)
        .env_remove("DLOCK_URL")
        .env_remove("REDISCLI_AUTH")
        .env_remove("NO_COLOR");
    command
}

/// `dlock` with the URL of a server in its environment.
pub fn dlock_at(server: &Server, args: &[&str]) -> Command {
    dlock_on(server.port(), args)
}

pub fn dlock_on(port: u16, args: &[&str]) -> Command {
    let mut command = dlock(args);
    command.env("DLOCK_URL", format!("redis://127.0.0.1:{port}"));
    command
}

/// Exit code and output of a program.
#[derive(Debug)]
pub struct Outcome {
    /// What ran, for messages.
    pub command: String,
    pub code: i32,
    pub out: String,
    pub err: String,
}

#[track_caller]
pub fn tool(args: &[&str]) -> Outcome {
    outcome(&mut dlock(args))
}

#[track_caller]
pub fn at(server: &Server, args: &[&str]) -> Outcome {
    on(server.port(), args)
}

#[track_caller]
pub fn on(port: u16, args: &[&str]) -> Outcome {
    outcome(&mut dlock_on(port, args))
}

/// Runs a program until it exits.
#[track_caller]
pub fn outcome(command: &mut Command) -> Outcome {
    let output = command.stdin(Stdio::null()).output().expect("the tool runs");
    Outcome {
        command: format!("{command:?}"),
        code: output.status.code().expect("it was not killed by a signal"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
    .without_panic()
}

impl Outcome {
    #[track_caller]
    fn without_panic(self) -> Self {
        assert!(!self.err.contains("panicked"), "{}: {self:?}", self.command);
        self
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Exits with this code, without output but an error that contains a text.
    #[track_caller]
    pub fn fails(self, code: i32, error: &str) -> Self {
        self.exits(code).prints("").warns(error)
    }

    #[track_caller]
    pub fn prints(self, output: &str) -> Self {
        assert_eq!(self.out, output, "{self:?}");
        self
    }

    #[track_caller]
    pub fn shows(self, part: &str) -> Self {
        assert!(self.out.contains(part), "{part}: {self:?}");
        self
    }

    #[track_caller]
    pub fn hides(self, part: &str) -> Self {
        assert!(!self.out.contains(part), "{part}: {self:?}");
        self
    }

    #[track_caller]
    pub fn warns(self, part: &str) -> Self {
        assert!(self.err.contains(part), "{part}: {self:?}");
        self
    }
}

/// Runs `dlock` with `--json`.
#[track_caller]
pub fn json(server: &Server, args: &[&str]) -> Value {
    let output = outcome(&mut dlock_at(server, &[args, &["--json"]].concat()));
    serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

pub fn names(locks: &Value) -> Vec<&str> {
    let locks = locks.as_array().expect("an array");
    locks
        .iter()
        .map(|lock| lock["name"].as_str().expect("a name"))
        .collect()
}

/// A running program. Killed when dropped.
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    errors: Option<Errors>,
    /// The read end of a full pipe, kept open.
    _unread: Option<PipeReader>,
}

/// What a program has written to its standard error, and the thread that reads it.
struct Errors {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Errors {
    fn of(pipe: ChildStderr) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let reader = thread::spawn({
            let text = Arc::clone(&text);
            move || {
                for line in BufReader::new(pipe).lines() {
                    let line = line.expect("text") + "\n";
                    text.lock().expect("no panic").push_str(&line);
                }
            }
        });
        Self { text, reader }
    }

    fn text(&self) -> String {
        self.text.lock().expect("no panic").clone()
    }
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self::start_with(command.stderr(Stdio::piped()), None)
    }

    /// Starts it with a full pipe as its standard error.
    pub fn start_with_blocked_stderr(command: &mut Command) -> Self {
        let (unread, mut full) = pipe().expect("the system has pipes");
        full.write_all(&[0; PIPE_BYTES])
            .expect("an empty pipe has this capacity");
        Self::start_with(command.stderr(full), Some(unread))
    }

    fn start_with(command: &mut Command, unread: Option<PipeReader>) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the tool runs");
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            errors: child.stderr.take().map(Errors::of),
            _unread: unread,
            child,
        }
    }

    /// Runs a shell script under the lock `job`.
    pub fn script(server: &Server, options: &[&str], script: &str) -> Self {
        Self::start(&mut script_at(server.port(), options, script))
    }

    /// The same, once the script runs.
    #[track_caller]
    pub fn ready(server: &Server, options: &[&str], script: &str) -> Self {
        let mut job = Self::script(server, options, &format!("echo ready; {script}"));
        job.expect("ready");
        job
    }

    /// Closes its input, and waits until it exits.
    #[track_caller]
    pub fn finish(mut self) -> Outcome {
        self.input = None;
        self.end()
    }

    /// The next line of output.
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

    /// Waits until its standard error contains a text.
    #[track_caller]
    pub fn wait_for_warning(&self, part: &str) {
        let errors = self.errors.as_ref().expect("standard error is read");
        wait_for(&format!("{part:?} on standard error"), || {
            errors.text().contains(part)
        });
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it runs");
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn has_ended(&mut self) -> bool {
        self.status().is_some()
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the state of a child can be read")
    }

    /// Waits until it exits: its exit code and the rest of its output.
    #[track_caller]
    pub fn end(mut self) -> Outcome {
        wait_for("the program to exit", || self.has_ended());
        let mut out = String::new();
        self.output.read_to_string(&mut out).expect("text");
        let status = self.status().expect("it has exited");
        let err = self.errors.take().map_or_else(String::new, |errors| {
            wait_for("the end of standard error", || errors.reader.is_finished());
            errors.text()
        });
        Outcome {
            command: format!("process {}", self.pid()),
            code: status.code().unwrap_or_else(|| panic!("{status}")),
            out,
            err,
        }
        .without_panic()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `dlock run` of a shell script under the lock `job`.
pub fn script_at(port: u16, options: &[&str], script: &str) -> Command {
    let args = [&["run", "job"], options, &["--", "sh", "-c", script]].concat();
    dlock_on(port, &args)
}

/// Whether a process exists and is not a zombie.
pub fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until a lock has neither holder nor waiters.
#[track_caller]
pub fn wait_until_free(client: &mut Client, key: &str) {
    wait_for(&format!("{key} to be free"), || client.find_lock(key).is_none());
}
