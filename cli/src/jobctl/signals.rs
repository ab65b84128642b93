//! Signals received by dlock.

use std::fs;
use std::io;

use nix::sys::signal::{Signal, raise};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::terminal::has_parent_shell;

/// Signals that are forwarded to the command.
const FORWARDED: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

pub struct Signals(UnboundedReceiver<Signal>);

impl Signals {
    /// Installs handlers, except for ignored signals: under `nohup`, the command ignores SIGHUP too.
    pub fn listen() -> io::Result<Self> {
        let (sender, receiver) = unbounded_channel();
        let ignored = ignored_signals();
        for which in FORWARDED.into_iter().chain([Signal::SIGTSTP, Signal::SIGCONT]) {
            if ignored & (1 << (which as u32 - 1)) == 0 {
                listen_to(which, sender.clone())?;
            }
        }
        // If SIGCHLD is ignored, the exit status of the command is lost.
        drop(signal(SignalKind::child())?);
        Ok(Self(receiver))
    }

    pub async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            // All signals are ignored.
            None => std::future::pending().await,
        }
    }

    /// The next signal that ends the wait for the lock. Ctrl-Z stops this process, as there is no command yet.
    pub async fn next_forwarded(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::SIGTSTP if has_parent_shell() => {
                    // Cannot fail for the own process.
                    let _ = raise(Signal::SIGSTOP);
                }
                signal if FORWARDED.contains(&signal) => return signal,
                _ => {}
            }
        }
    }
}

fn listen_to(which: Signal, sender: UnboundedSender<Signal>) -> io::Result<()> {
    let mut stream = signal(SignalKind::from_raw(which as i32))?;
    tokio::spawn(async move { while stream.recv().await.is_some() && sender.send(which).is_ok() {} });
    Ok(())
}

/// The signals that were ignored when this program started, as a bit mask.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
