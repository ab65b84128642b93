//! Messages printed while a command runs. A thread writes them, so that a blocked standard error does not delay the
//! reaction to a lost lock.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::output::eprint_error;

/// How long the exit of the program waits for unwritten messages.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The thread that writes.
pub struct StderrWriter {
    sender: StderrSender,
    /// Disconnected once everything is written.
    done: Receiver<()>,
}

/// Queues messages without waiting for them to be written. `None` ends the thread.
#[derive(Clone)]
pub struct StderrSender(Sender<Option<String>>);

impl StderrWriter {
    pub fn start() -> io::Result<Self> {
        let (sender, messages) = channel();
        let (running, done) = channel();
        thread::Builder::new()
            .name("dlock-stderr".into())
            .spawn(move || {
                write_all(&messages);
                drop(running);
            })?;
        Ok(Self {
            sender: StderrSender(sender),
            done,
        })
    }

    pub fn sender(&self) -> &StderrSender {
        &self.sender
    }

    /// Waits until everything is written, up to a timeout.
    pub fn flush(self) {
        let _ = self.sender.0.send(None);
        // Always an error: disconnected or timed out.
        let _ = self.done.recv_timeout(FLUSH_TIMEOUT);
    }
}

impl StderrSender {
    pub fn print(&self, message: String) {
        // The thread may have ended.
        let _ = self.0.send(Some(message));
    }
}

fn write_all(messages: &Receiver<Option<String>>) {
    // While the command is in the foreground, this process is in the background. A terminal with `stty tostop` would
    // stop it on a write unless SIGTTOU is blocked. If that fails, messages may be delayed.
    let mut blocked = SigSet::empty();
    blocked.add(Signal::SIGTTOU);
    let _ = blocked.thread_block();
    for message in messages.iter().map_while(|message| message) {
        eprint_error(&message);
    }
}
