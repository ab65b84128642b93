use std::fs::File;
use std::io::{IsTerminal, stdin};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal that this program belongs to.
pub struct Terminal {
    device: File,
    /// Whether the command reads from it: else it does well in the background, until it asks for it.
    is_input: bool,
}

impl Terminal {
    pub fn open() -> Option<Self> {
        Some(Self {
            device: File::options().read(true).write(true).open("/dev/tty").ok()?,
            is_input: stdin().is_terminal(),
        })
    }

    /// Whether we are in the foreground.
    pub fn is_ours(&self) -> bool {
        self.belongs_to(getpgrp())
    }

    /// Puts a process group into the foreground, if we are there and it reads from the terminal.
    pub fn hand_over_to(&self, group: Pid) {
        if self.is_input {
            self.give_to(group);
        }
    }

    /// Puts a process group into the foreground, if we are there.
    pub fn give_to(&self, group: Pid) {
        if self.is_ours() {
            self.put_into_foreground(group);
        }
    }

    /// Back into the foreground, unless the shell has put somebody else there.
    pub fn take_back_from(&self, group: Pid) {
        if self.belongs_to(group) {
            self.put_into_foreground(getpgrp());
        }
    }

    pub fn belongs_to(&self, group: Pid) -> bool {
        tcgetpgrp(&self.device) == Ok(group)
    }

    fn put_into_foreground(&self, group: Pid) {
        // From the background this is answered by a signal that stops, unless it is blocked.
        let mut stops = SigSet::empty();
        stops.add(Signal::SIGTTOU);
        if stops.thread_block().is_ok() {
            // An error means that the terminal has gone, or the group.
            let _ = tcsetpgrp(&self.device, group);
            let _ = stops.thread_unblock();
        }
    }
}
