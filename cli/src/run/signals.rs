use std::fs;
use std::io;

use nix::sys::signal::{Signal, raise};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::job::has_shell;

/// Those that end a command, or mean something to it.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The signals that this program gets.
pub struct Signals(UnboundedReceiver<Signal>);

impl Signals {
    /// Catches signals from now on, but those that are ignored: `nohup` stays `nohup`, for the command too.
    pub fn listen() -> io::Result<Self> {
        let (sender, receiver) = unbounded_channel();
        let ignored = ignored();
        for which in PASSED_ON.into_iter().chain([Signal::SIGTSTP, Signal::SIGCONT]) {
            if ignored & (1 << (which as u32 - 1)) == 0 {
                listen_to(which, sender.clone())?;
            }
        }
        // Where this one is ignored, nobody is told how a command ended.
        drop(signal(SignalKind::child())?);
        Ok(Self(receiver))
    }

    pub async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            // All are ignored.
            None => std::future::pending().await,
        }
    }

    /// The next one that is passed on. There is no command yet that a stop would go to: it stops this program.
    pub async fn passed_on(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::SIGTSTP if has_shell() => {
                    // To oneself it is always allowed.
                    let _ = raise(Signal::SIGSTOP);
                }
                signal if PASSED_ON.contains(&signal) => return signal,
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

/// The signals that were ignored when this program was started, a bit each.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
