//! Commands that inject faults.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use dlock_drill::history::{Micros, now};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

use crate::exit::Failure;

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// What is shown of the output, at most.
const MAX_OUTPUT: u64 = 4_096;

/// A command that has run.
#[derive(Debug)]
pub struct Fault {
    pub command: String,
    pub from: Micros,
    pub took: Duration,
    /// Why it counts as failed.
    pub failure: Option<String>,
    pub output: String,
}

/// Runs a command until it exits. Kills it and what it has started at this time.
pub async fn run(command: &str, until: Instant) -> Result<Fault, Failure> {
    let os_failure = |error: io::Error| Failure::os(&format!("run {command}"), &error);
    let from = now();
    let mut output = unnamed_file().map_err(os_failure)?;
    let started = start(command, &output);
    let mut group = started.map_err(os_failure)?;
    let status = loop {
        match group.shell.try_wait().map_err(os_failure)? {
            None if Instant::now() < until => sleep(POLL_INTERVAL).await,
            status => break status,
        }
    };
    // What it has left in the background belongs to the deployment.
    group.has_exited = status.is_some();
    let mut text = Vec::new();
    output.rewind().map_err(os_failure)?;
    output
        .take(MAX_OUTPUT)
        .read_to_end(&mut text)
        .map_err(os_failure)?;
    Ok(Fault {
        command: command.to_owned(),
        from,
        took: Duration::from_micros(now() - from),
        failure: failure(status),
        output: String::from_utf8_lossy(&text).trim_end().to_owned(),
    })
}

/// A command in a process group of its own, which is killed when dropped unless the command has exited.
struct Group {
    shell: Child,
    has_exited: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.has_exited {
            // An error means that it has. Process ids are i32 in the C API.
            let _ = killpg(Pid::from_raw(self.shell.id() as i32), Signal::SIGKILL);
            let _ = self.shell.wait();
        }
    }
}

fn start(command: &str, output: &File) -> io::Result<Group> {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output.try_clone()?)
        .process_group(0);
    Ok(Group {
        shell: shell.spawn()?,
        has_exited: false,
    })
}

fn failure(status: Option<ExitStatus>) -> Option<String> {
    let Some(status) = status else {
        return Some("it did not end, and was killed".to_owned());
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit code {code}")),
        (None, signal) => Some(format!("killed by signal {}", signal.unwrap_or_default())),
    }
}

/// Unlike a pipe, it takes what a server writes that the command has started, also after this program has ended.
fn unnamed_file() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("dlock-drill-{}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}
