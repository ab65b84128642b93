//! Supervises the running command and its lock.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep_until};

use super::job::{Job, JobEvent};
use super::lock::Guard;
use super::signals::Signals;
use super::stderr_writer::StderrSender;
use crate::args::{OnLost, RunArgs};
use crate::text::display_name;

pub struct Supervisor<'a> {
    args: &'a RunArgs,
    guard: &'a Guard<'a>,
    job: Job,
    stderr: &'a StderrSender,
    loss: Option<String>,
    /// When to send KILL to processes that ignored TERM.
    kill_at: Option<Instant>,
}

impl<'a> Supervisor<'a> {
    pub fn new(args: &'a RunArgs, guard: &'a Guard<'a>, job: Job, stderr: &'a StderrSender) -> Self {
        Self {
            args,
            guard,
            job,
            stderr,
            loss: None,
            kill_at: None,
        }
    }

    /// Why the lock was lost, if it was.
    pub fn loss(&self) -> Option<String> {
        self.loss.clone()
    }

    /// Forwards signals and reacts to a lost lock until the command exits.
    pub async fn wait_for_exit(&mut self, signals: &mut Signals) -> ExitCode {
        loop {
            let kill_at = self.kill_at.unwrap_or_else(Instant::now);
            tokio::select! {
                biased;
                loss = self.guard.lost(), if self.loss.is_none() => self.on_lost(loss),
                () = sleep_until(kill_at), if self.kill_at.is_some() => {
                    self.kill_at = None;
                    self.job.signal(Signal::SIGKILL);
                }
                event = self.job.next_event() => match event {
                    JobEvent::Exited(code) => return self.on_exit(ExitCode::from(code)),
                    JobEvent::Killed(signal) => return self.on_exit(exit_code_of(signal)),
                    JobEvent::Stopped(signal) => self.on_stopped(signal),
                },
                signal = signals.next() => match signal {
                    Signal::SIGCONT => self.on_continued().await,
                    signal => self.job.signal(signal),
                },
            }
        }
    }

    fn on_lost(&mut self, loss: String) {
        let action = match self.args.on_lost {
            OnLost::Kill => {
                self.job.signal(Signal::SIGKILL);
                "killing the command"
            }
            OnLost::Term => {
                self.job.signal(Signal::SIGTERM);
                // A stopped process handles TERM only after CONT.
                self.job.signal(Signal::SIGCONT);
                self.kill_at = Some(Instant::now() + self.args.kill_after);
                "terminating the command"
            }
            OnLost::Ignore => "the command keeps running",
        };
        let name = display_name(self.args.name.as_bytes());
        self.stderr
            .print(format!("lost the lock {name}: {loss}: {action}"));
        self.loss = Some(loss);
    }

    /// The command has exited, but other processes of its group may have ignored TERM.
    fn on_exit(&self, exit: ExitCode) -> ExitCode {
        if self.kill_at.is_some() {
            self.job.signal(Signal::SIGKILL);
        }
        exit
    }

    /// Checks the lease before the command continues: it may have expired while everything was stopped.
    async fn on_continued(&mut self) {
        if self.loss.is_none() && self.guard.is_lost() {
            let loss = self.guard.lost().await;
            self.on_lost(loss);
        }
        self.job.resume();
    }

    /// When the user stops the command, dlock stops too and the shell takes over. The lease may expire meanwhile.
    fn on_stopped(&self, by: Signal) {
        if self.job.stopped_for_terminal(by) {
            self.job.resume_in_foreground();
        } else {
            self.job.stop_with_command();
        }
    }
}

/// 128 + the number of the signal, as in a shell.
pub fn exit_code_of(signal: Signal) -> ExitCode {
    ExitCode::from(128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or_default()))
}
