//! The controlling terminal and its foreground process group.

use std::fs::File;
use std::io::{IsTerminal, stdin};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp};

pub struct Terminal {
    device: File,
    /// Whether the command inherits the terminal as its standard input. If not, it can run in the background until it
    /// accesses the terminal.
    is_stdin: bool,
}

impl Terminal {
    pub fn open() -> Option<Self> {
        Some(Self {
            device: File::options().read(true).write(true).open("/dev/tty").ok()?,
            is_stdin: stdin().is_terminal(),
        })
    }

    /// Whether our own process group is in the foreground.
    pub fn is_ours(&self) -> bool {
        self.is_foreground(getpgrp())
    }

    pub fn is_foreground(&self, group: Pid) -> bool {
        tcgetpgrp(&self.device) == Ok(group)
    }

    /// Moves a process group to the foreground if we are there and the terminal is its standard input.
    pub fn give_to_reader(&self, group: Pid) {
        if self.is_stdin {
            self.give_to(group);
        }
    }

    /// Moves a process group to the foreground if we are there.
    pub fn give_to(&self, group: Pid) {
        if self.is_ours() {
            self.set_foreground(group);
        }
    }

    /// Moves us to the foreground in place of `group`, unless the shell has already put another group there.
    pub fn take_from(&self, group: Pid) {
        if self.is_foreground(group) {
            self.set_foreground(getpgrp());
        }
    }

    fn set_foreground(&self, group: Pid) {
        // tcsetpgrp from the background raises SIGTTOU, which stops the process unless it is blocked.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        if blocked.thread_block().is_ok() {
            // An error means that the terminal or the group no longer exists.
            let _ = tcsetpgrp(&self.device, group);
            let _ = blocked.thread_unblock();
        }
    }
}

/// Whether our parent is in our session, as a shell with job control is: it can continue us after a stop.
pub fn has_parent_shell() -> bool {
    let session = getsid(None);
    session.is_ok() && session == getsid(Some(getppid()))
}
