//! Supervises the running command and what protects it.

use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep_until};

use super::job::{Job, JobEvent};
use super::signals::Signals;
use super::stderr_writer::StderrSender;

/// What the command must not run without, such as a held lock.
pub trait Protection {
    /// Resolves with the reason when it is lost.
    async fn lost(&self) -> String;

    /// Whether it is lost, as far as known here.
    fn is_lost(&self) -> bool;
}

/// What happens to the command when its protection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnLost {
    /// Send KILL at once: another client may already hold the lock
    Kill,
    /// Send TERM, then KILL after a delay
    Term,
    /// Print a warning and keep the command running
    Ignore,
}

pub struct Rules {
    /// What protects the command, for messages.
    pub what: String,
    pub on_lost: OnLost,
    /// After TERM.
    pub kill_after: Duration,
}

pub struct Supervisor<'a, P> {
    rules: Rules,
    protection: &'a P,
    job: Job,
    stderr: &'a StderrSender,
    loss: Option<String>,
    /// When to send KILL to processes that ignored TERM.
    kill_at: Option<Instant>,
}

impl<'a, P: Protection> Supervisor<'a, P> {
    pub fn new(rules: Rules, protection: &'a P, job: Job, stderr: &'a StderrSender) -> Self {
        Self {
            rules,
            protection,
            job,
            stderr,
            loss: None,
            kill_at: None,
        }
    }

    /// Forwards signals and reacts to a loss until the command exits. Returns the loss that was reported, too.
    pub async fn wait_for_exit(mut self, signals: &mut Signals) -> (ExitCode, Option<String>) {
        loop {
            let kill_at = self.kill_at.unwrap_or_else(Instant::now);
            let exit = tokio::select! {
                biased;
                loss = self.protection.lost(), if self.loss.is_none() => {
                    self.on_lost(loss);
                    continue;
                }
                () = sleep_until(kill_at), if self.kill_at.is_some() => {
                    self.kill_at = None;
                    self.job.signal(Signal::SIGKILL);
                    continue;
                }
                event = self.job.next_event() => match event {
                    JobEvent::Exited(code) => ExitCode::from(code),
                    JobEvent::Killed(signal) => exit_code_of(signal),
                    JobEvent::Stopped(signal) => {
                        self.on_stopped(signal);
                        continue;
                    }
                },
                signal = signals.next() => {
                    match signal {
                        Signal::SIGCONT => self.on_continued().await,
                        signal => self.job.signal(signal),
                    }
                    continue;
                }
            };
            if self.kill_at.is_some() {
                // Other processes of the group may have ignored TERM.
                self.job.signal(Signal::SIGKILL);
            }
            return (exit, self.loss);
        }
    }

    fn on_lost(&mut self, loss: String) {
        let action = match self.rules.on_lost {
            OnLost::Kill => {
                self.job.signal(Signal::SIGKILL);
                "killing the command"
            }
            OnLost::Term => {
                self.job.signal(Signal::SIGTERM);
                // A stopped process handles TERM only after CONT.
                self.job.signal(Signal::SIGCONT);
                self.kill_at = Some(Instant::now() + self.rules.kill_after);
                "terminating the command"
            }
            OnLost::Ignore => "the command keeps running",
        };
        let what = &self.rules.what;
        self.stderr.print(format!("lost {what}: {loss}: {action}"));
        self.loss = Some(loss);
    }

    /// Checks the protection before the command continues: it may have ended while everything was stopped.
    async fn on_continued(&mut self) {
        if self.loss.is_none() && self.protection.is_lost() {
            let loss = self.protection.lost().await;
            self.on_lost(loss);
        }
        self.job.resume();
    }

    /// When the user stops the command, dlock stops too and the shell takes over.
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
