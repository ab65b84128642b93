//! A pseudo-terminal with a program on it.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use dlock_testkit::wait_for;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use vt100::{Parser, Screen};

/// The program is the leader of the terminal's session. When dropped, the terminal hangs up.
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Parser>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Starts a program with this terminal as its controlling terminal.
    pub fn start(command: &Command, rows: u16, columns: u16) -> Self {
        let (master, slave) = open_pty(rows, columns);
        let child = spawn(command, &slave);
        drop(slave);
        let screen = Arc::new(Mutex::new(Parser::new(length(rows), length(columns), 0)));
        let output = File::from(master.try_clone().expect("file descriptors can be duplicated"));
        let reader = thread::spawn({
            let screen = Arc::clone(&screen);
            move || read_output(output, &screen)
        });
        Self {
            child,
            keyboard: master.into(),
            screen,
            reader,
        }
    }

    pub fn text(&self) -> String {
        self.screen.lock().expect("no panic").screen().contents()
    }

    pub fn is_bold(&self, row: u16, column: u16) -> bool {
        let screen = self.screen.lock().expect("no panic");
        screen.screen().cell(row, column).is_some_and(vt100::Cell::bold)
    }

    /// Whether a program uses the alternate screen or has hidden the cursor.
    pub fn is_full_screen(&self) -> bool {
        let screen = self.screen.lock().expect("no panic");
        let is_full_screen = |screen: &Screen| screen.alternate_screen() || screen.hide_cursor();
        is_full_screen(screen.screen())
    }

    pub fn press(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("the terminal is open");
    }

    /// Waits until the screen shows a text.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        let mut last = String::new();
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(&format!("{text:?} on the screen"), || {
                last = self.text();
                last.contains(text)
            });
        }));
        assert!(shown.is_ok(), "{text:?} did not appear on the screen:\n{last}");
    }

    /// Presses keys that make the program exit with this code.
    #[track_caller]
    pub fn exits(mut self, keys: &str, code: i32) {
        self.press(keys);
        let (ended, screen) = self.end();
        assert_eq!(ended, code, "{screen}");
    }

    /// Waits for the program to exit: its exit code and the last screen.
    #[track_caller]
    pub fn end(mut self) -> (i32, String) {
        wait_for("the program to exit", || {
            self.child.try_wait().expect("a child").is_some()
        });
        let status = self.child.wait().expect("it has exited");
        // The reader ends once no process has the terminal open and everything is read.
        wait_for("the end of the output", || self.reader.is_finished());
        (status.code().expect("setsid reports a code"), self.text())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An error means that it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both ends are close-on-exec from the start: programs that other tests start at the same time must not inherit them,
/// or the output would not end before those programs do.
fn open_pty(rows: u16, columns: u16) -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags).expect("the system has pseudo-terminals");
    grantpt(&master).expect("the pseudo-terminal is ours");
    unlockpt(&master).expect("the pseudo-terminal is ours");
    let slave = ioctl_tiocgptpeer(&master, flags).expect("a pseudo-terminal has a slave");
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&slave, size).expect("the size can be set");
    (master, slave)
}

fn length(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).expect("a screen is not empty")
}

/// `setsid` sets the controlling terminal, which would need unsafe code here.
fn spawn(command: &Command, slave: &OwnedFd) -> Child {
    let mut setsid = Command::new("setsid");
    setsid
        .args(["--ctty", "--wait"])
        .arg(command.get_program())
        .args(command.get_args());
    setsid.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => setsid.env(name, value),
            None => setsid.env_remove(name),
        };
    }
    let handle = || slave.try_clone().expect("file descriptors can be duplicated");
    setsid
        .stdin(handle())
        .stdout(handle())
        .stderr(handle())
        .spawn()
        .expect("the program setsid is installed")
}

fn read_output(mut output: File, screen: &Mutex<Parser>) {
    let mut buffer = [0; 4096];
    // Once the last process has closed the terminal, reads fail.
    while let Ok(length) = output.read(&mut buffer) {
        if length == 0 {
            return;
        }
        screen.lock().expect("no panic").process(&buffer[..length]);
    }
}
