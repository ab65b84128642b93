//! The command, in a process group of its own, so that signals reach everything it starts.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpgrp};
use tokio::signal::unix::{self, SignalKind, signal};

use super::parent_death::{self, cannot_run};
use super::terminal::{Terminal, has_parent_shell};
use crate::exit::{Code, Failure};

pub struct Job {
    group: Pid,
    /// SIGCHLD: some child has changed its state.
    changes: unix::Signal,
    terminal: Option<Terminal>,
}

/// A change of the state of the command's process.
#[derive(Clone, Copy, Debug)]
pub enum JobEvent {
    Exited(u8),
    Killed(Signal),
    Stopped(Signal),
}

impl Job {
    /// Starts the command with these variables in its environment, which it does not inherit.
    pub fn start(words: &[OsString], env: &[(&str, Option<&OsStr>)]) -> Result<Self, Failure> {
        let (program, args) = words
            .split_first()
            .ok_or_else(|| Failure::usage("the command is missing"))?;
        // Listened to first: the command may exit at once.
        let changes =
            signal(SignalKind::child()).map_err(|error| Failure::os("install signal handlers", &error))?;
        let mut command = parent_death::command(program);
        for (name, value) in env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command
            .args(args)
            .process_group(0)
            .spawn()
            .map_err(|error| cannot_run(program, &error))?;
        // Process ids are i32 in the C API.
        let group = Pid::from_raw(child.id() as i32);
        let terminal = Terminal::open();
        if let Some(terminal) = &terminal {
            terminal.give_to_reader(group);
        }
        Ok(Self {
            group,
            changes,
            terminal,
        })
    }

    /// The next change. Cancel safe.
    pub async fn next_event(&mut self) -> JobEvent {
        loop {
            if let Some(event) = self.changed() {
                return event;
            }
            self.changes.recv().await;
        }
    }

    /// What has changed since the last call. The process is reaped when the job is dropped.
    fn changed(&self) -> Option<JobEvent> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        match waitid(Id::Pid(self.group), flags | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(_, code)) => {
                Some(JobEvent::Exited(u8::try_from(code & 0xff).unwrap_or_default()))
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(JobEvent::Killed(signal)),
            Ok(WaitStatus::Stopped(_, signal)) => {
                let _ = waitid(Id::Pid(self.group), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
                Some(JobEvent::Stopped(signal))
            }
            Ok(_) => None,
            Err(_) => Some(JobEvent::Exited(Code::OsError as u8)),
        }
    }

    /// Sends a signal to the process group.
    pub fn signal(&self, signal: Signal) {
        // An error means that all processes have exited. The group id is not reused before this job is dropped.
        let _ = killpg(self.group, signal);
    }

    /// Continues the command, in the foreground if we are there.
    pub fn resume(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.give_to_reader(self.group);
        }
        self.signal(Signal::SIGCONT);
    }

    /// Continues the command in the foreground if we are there, even if its standard input is not the terminal.
    pub fn resume_in_foreground(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.give_to(self.group);
        }
        self.signal(Signal::SIGCONT);
    }

    /// Whether the command was stopped only because it accessed the terminal from the background, while the
    /// foreground was ours to give. It may have been given the foreground since.
    pub fn stopped_for_terminal(&self, stopped_by: Signal) -> bool {
        let wants_terminal = matches!(stopped_by, Signal::SIGTTIN | Signal::SIGTTOU);
        let terminal = self.terminal.as_ref().filter(|_| wants_terminal);
        terminal.is_some_and(|terminal| terminal.is_ours() || terminal.is_foreground(self.group))
    }

    /// After the command was stopped: stops this process group too, so that the shell takes over. SIGCONT arrives
    /// when the shell continues it.
    pub fn stop_with_command(&self) {
        // Without a terminal there is no shell waiting. Whoever stopped the command will continue it.
        let Some(terminal) = &self.terminal else {
            return;
        };
        terminal.take_from(self.group);
        if has_parent_shell() {
            // Includes this process, so it cannot fail.
            let _ = killpg(getpgrp(), Signal::SIGSTOP);
        } else {
            self.resume();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_from(self.group);
        }
        // Reaps the process, which kept the group id reserved.
        let _ = waitid(Id::Pid(self.group), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG);
    }
}
