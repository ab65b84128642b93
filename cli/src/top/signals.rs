use std::sync::mpsc::{Receiver, channel};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

/// Those that would end the program and leave the terminal as it is: raw, and without a cursor.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Catches the signals that end a program. Threads that are started later leave them to this one's channel.
pub fn listen() -> nix::Result<Receiver<Signal>> {
    let ending: SigSet = ENDING.into_iter().collect();
    ending.thread_block()?;
    let (sender, signals) = channel();
    thread::spawn(move || {
        while let Ok(signal) = ending.wait() {
            if sender.send(signal).is_err() {
                return;
            }
        }
    });
    Ok(signals)
}
