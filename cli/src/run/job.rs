use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp, getppid, getsid};
use redis_dlock_client::Guard;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::terminal::Terminal;
use crate::exit::{Code, Failure};

/// A command in a process group of its own: what is sent to it reaches all that it started.
pub struct Job {
    group: Pid,
    changes: UnboundedReceiver<Change>,
    terminal: Option<Terminal>,
}

/// What became of the command.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// It ended by itself, with this exit code.
    Ended(u8),
    /// A signal ended it.
    Killed(Signal),
    /// A signal stopped it: it may be continued.
    Stopped(Signal),
}

impl Job {
    /// Starts a command that knows its lock.
    pub fn start(words: &[OsString], guard: &Guard) -> Result<Self, Failure> {
        let (program, args) = words
            .split_first()
            .ok_or_else(|| Failure::usage("there is no command"))?;
        // First, for without it the command could not be watched.
        let (sender, changes) = unbounded_channel();
        let (tell_group, group) = mpsc::channel();
        thread::Builder::new()
            .name("dlock-wait".into())
            .spawn(move || group.recv().map(|group| watch(group, &sender)))
            .map_err(|error| cannot_watch(&error))?;
        let owner = OsString::from(guard.owner().to_string());
        let child = Command::new(program)
            .args(args)
            .env("DLOCK_FENCE", guard.fence().to_string())
            .env("DLOCK_OWNER", owner)
            .process_group(0)
            .spawn()
            .map_err(|error| cannot_run(program, &error))?;
        // A process id fits: the system gave it as one.
        let group = Pid::from_raw(child.id() as i32);
        // The thread waits for it.
        let _ = tell_group.send(group);
        let terminal = Terminal::open();
        if let Some(terminal) = &terminal {
            terminal.hand_over_to(group);
        }
        Ok(Self {
            group,
            changes,
            terminal,
        })
    }

    pub async fn next_change(&mut self) -> Change {
        // The thread that tells ends after the command only, unless the system does not tell it.
        let unknown = Change::Ended(Code::System as u8);
        self.changes.recv().await.unwrap_or(unknown)
    }

    /// Sends a signal to the command and all that it started.
    pub fn signal(&self, signal: Signal) {
        // An error means that all have ended. The group's number is not used again before this one is dropped.
        let _ = killpg(self.group, signal);
    }

    /// Continues the command, in the foreground if we are there.
    pub fn go_on(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.hand_over_to(self.group);
        }
        self.signal(Signal::SIGCONT);
    }

    /// Continues the command, in the foreground if we are there, whatever its input is.
    pub fn go_on_with_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.give_to(self.group);
        }
        self.signal(Signal::SIGCONT);
    }

    /// Whether the command was stopped because it used the terminal before it was given to it; by now it may have
    /// been.
    pub fn only_wants_terminal(&self, stopped_by: Signal) -> bool {
        let wants_it = matches!(stopped_by, Signal::SIGTTIN | Signal::SIGTTOU);
        let terminal = self.terminal.as_ref().filter(|_| wants_it);
        terminal.is_some_and(|terminal| terminal.is_ours() || terminal.belongs_to(self.group))
    }

    /// After a stop of the command: stops this program as well, and those that were started along with it.
    /// Whoever continues them is heard of by SIGCONT.
    pub fn stop_along(&self) {
        // Without a terminal nobody waits for it: whoever stopped the command will continue it.
        let Some(terminal) = &self.terminal else {
            return;
        };
        terminal.take_back_from(self.group);
        if has_shell() {
            // Ourselves included, which is always allowed.
            let _ = killpg(getpgrp(), Signal::SIGSTOP);
        } else {
            self.go_on();
        }
    }
}

/// Whether there is a shell that could continue us: our parent, in our session.
pub fn has_shell() -> bool {
    let session = getsid(None);
    session.is_ok() && session == getsid(Some(getppid()))
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back_from(self.group);
        }
        // Frees the process id, which stood for the group until now.
        let _ = waitid(Id::Pid(self.group), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
    }
}

/// Tells of changes until the command has ended. The ended process is left for [`Job`] to reap.
fn watch(command: Pid, changes: &UnboundedSender<Change>) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED;
    loop {
        let change = match waitid(Id::Pid(command), flags | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(_, code)) => Change::Ended(u8::try_from(code & 0xff).unwrap_or_default()),
            Ok(WaitStatus::Signaled(_, signal, _)) => Change::Killed(signal),
            Ok(WaitStatus::Stopped(_, signal)) => {
                let _ = waitid(Id::Pid(command), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
                Change::Stopped(signal)
            }
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(_) => return,
        };
        if changes.send(change).is_err() || !matches!(change, Change::Stopped(_)) {
            return;
        }
    }
}

fn cannot_watch(error: &io::Error) -> Failure {
    Failure::new(
        Code::System,
        format!("cannot start a thread: {error}: nothing was done under the lock"),
    )
}

fn cannot_run(program: &OsString, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NotFound,
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Code::System,
        _ => Code::CannotRun,
    };
    let program = program.to_string_lossy();
    Failure::new(
        code,
        format!("cannot run {program}: {error}: nothing was done under the lock"),
    )
}
