//! What the user is told while a command runs. A standard error that nobody reads must not hold up what is done about
//! a lost lock, so a thread of its own writes.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::complain;

/// So long what is still to be written keeps the program from ending.
const PATIENCE: Duration = Duration::from_secs(2);

/// The thread that writes.
pub struct Teller {
    voice: Voice,
    /// Closed when all is written.
    written: Receiver<()>,
}

/// Says something, and does not wait until it is written. `None` is the end.
#[derive(Clone)]
pub struct Voice(Sender<Option<String>>);

impl Teller {
    pub fn start() -> io::Result<Self> {
        let (sender, lines) = channel();
        let (at_work, written) = channel();
        thread::Builder::new().name("dlock-tell".into()).spawn(move || {
            write(&lines);
            drop(at_work);
        })?;
        Ok(Self {
            voice: Voice(sender),
            written,
        })
    }

    pub fn voice(&self) -> &Voice {
        &self.voice
    }

    /// Waits until all is written, but not for ever.
    pub fn finish(self) {
        let _ = self.voice.0.send(None);
        // An error either way: nothing comes, it is closed or the time is over.
        let _ = self.written.recv_timeout(PATIENCE);
    }
}

impl Voice {
    pub fn say(&self, what: String) {
        // Nobody listens after the end.
        let _ = self.0.send(Some(what));
    }
}

fn write(lines: &Receiver<Option<String>>) {
    // A terminal may stop those who write from the background, which is where we are while the command runs; but not
    // those who block the signal. An error means only that it may.
    let mut stops = SigSet::empty();
    stops.add(Signal::SIGTTOU);
    let _ = stops.thread_block();
    for line in lines.iter().map_while(|line| line) {
        complain(&line);
    }
}
