//! A process of clients: this program runs itself. Parent and child talk over a socket that is the child's standard
//! input, in lines of JSON: the task, "ready", "go", and what the clients measured.

use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::rules::{self, LEASE};
use crate::error::Result;
use crate::implementations::Client;
use crate::workloads::contention::{Window, Worker, WorkerLogs, run_workers};

/// What a process is to do.
#[derive(Serialize, Deserialize)]
pub struct Task {
    pub rule: String,
    pub urls: Vec<String>,
    /// For each client, the file of its lock. Its name is the key.
    pub locks: Vec<PathBuf>,
    pub window: Window,
}

/// A running child. It ends when this is dropped.
pub struct Process {
    child: Child,
    lines: Lines,
}

impl Process {
    /// Returns when its clients are connected.
    pub fn start(task: &Task) -> Result<Self> {
        let (socket, stdin) = UnixStream::pair()?;
        let child = command()?.stdin(OwnedFd::from(stdin)).spawn()?;
        let mut process = Self {
            child,
            lines: Lines::new(socket)?,
        };
        process.lines.send(task)?;
        process.lines.receive::<Outcome<()>>()??;
        Ok(process)
    }

    pub fn begin(&mut self) -> Result<()> {
        self.lines.send(&())
    }

    pub fn finish(mut self) -> Result<WorkerLogs> {
        Ok(self.lines.receive::<Outcome<WorkerLogs>>()??)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(not(test))]
fn command() -> Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("--quorum-process");
    Ok(command)
}

/// The program of the tests has other options, but runs one test.
#[cfg(test)]
fn command() -> Result<Command> {
    let test = concat!(module_path!(), "::tests::child_of_another_test_serves_it");
    let mut command = Command::new(env::current_exe()?);
    command.args(["--ignored", "--exact", &test[test.find("::").unwrap_or(0) + 2..]]);
    command.stdout(std::process::Stdio::null());
    Ok(command)
}

/// Errors are sent as text.
type Outcome<T> = std::result::Result<T, String>;

/// In the child.
pub fn serve() -> Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let mut lines = Lines::new(socket.into())?;
    let task: Task = lines.receive()?;
    let workers = open(&task);
    lines.send(&workers.as_ref().map(|_| ()).map_err(ToString::to_string))?;
    lines.receive::<()>()?;
    let logs = run_workers(workers?, task.locks.len(), task.window);
    lines.send(&logs.map_err(|error| error.to_string()))
}

/// The clients of a process. The first one connects.
fn open(task: &Task) -> Result<Vec<Worker>> {
    let file_name = |lock: &PathBuf| Some(lock.file_name()?.to_str()?.to_owned());
    let keys: Option<Vec<_>> = task.locks.iter().map(file_name).collect();
    let mut clients = rules::open(&task.rule, &task.urls, &keys.ok_or("a lock has no name")?)?;
    if let Some(client) = clients.first_mut() {
        client.acquire(Instant::now() + LEASE)?;
        client.release()?;
    }
    let checked = |(client, lock)| {
        let file = File::create(lock)?;
        Ok(Worker::new(Box::new(Checked { client, file })))
    };
    clients.into_iter().zip(&task.locks).map(checked).collect()
}

/// Holds a lock of the system as well, which all processes share: two holders are an error.
struct Checked {
    client: Box<dyn Client>,
    file: File,
}

impl Client for Checked {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        let is_granted = self.client.acquire(end)?;
        if is_granted {
            let lock = self.file.try_lock();
            lock.map_err(|error| format!("two clients hold the lock: {error}"))?;
        }
        Ok(is_granted)
    }

    fn release(&mut self) -> Result<()> {
        self.file.unlock()?;
        self.client.release()
    }

    fn commands(&self) -> Option<u64> {
        self.client.commands()
    }
}

/// Messages over a socket, a line each.
struct Lines {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Lines {
    fn new(socket: UnixStream) -> Result<Self> {
        Ok(Self {
            writer: socket.try_clone()?,
            reader: BufReader::new(socket),
        })
    }

    fn send(&mut self, message: &impl Serialize) -> Result<()> {
        Ok(writeln!(self.writer, "{}", serde_json::to_string(message)?)?)
    }

    fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err("a process of clients has ended".into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "another test runs it as a process of clients"]
    fn child_of_another_test_serves_it() -> Result<()> {
        serve()
    }
}
