//! Receives terminating signals.

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

/// Their default action would leave the terminal in raw mode and without a cursor.
const TERMINATING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Blocks the terminating signals, also for threads started later, and receives them in a thread.
pub fn listen() -> nix::Result<Receiver<Signal>> {
    let terminating: SigSet = TERMINATING.into_iter().collect();
    terminating.thread_block()?;
    let (sender, signals) = channel();
    thread::spawn(move || {
        while let Ok(signal) = terminating.wait() {
            if sender.send(signal).is_err() {
                return;
            }
        }
    });
    Ok(signals)
}
