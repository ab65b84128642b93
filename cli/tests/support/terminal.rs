use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use dlock_testkit::wait_for;
use nix::pty::{Winsize, openpty};
use vt100::{Parser, Screen};

/// A terminal with a program on it, which is its session's first. Dropped, the terminal hangs up.
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Parser>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Starts a program with this terminal as its own.
    pub fn start(command: &Command, rows: u16, columns: u16) -> Self {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let pty = openpty(&size, None).expect("the system has terminals");
        let child = spawn(command, &pty.slave);
        drop(pty.slave);
        let screen = Arc::new(Mutex::new(Parser::new(length(rows), length(columns), 0)));
        let output = File::from(pty.master.try_clone().expect("a handle can be cloned"));
        let reader = thread::spawn({
            let screen = Arc::clone(&screen);
            move || show(output, &screen)
        });
        Self {
            child,
            keyboard: pty.master.into(),
            screen,
            reader,
        }
    }

    pub fn text(&self) -> String {
        self.screen.lock().expect("no panic").screen().contents()
    }

    /// What is shown now, with its colours.
    pub fn screen(&self) -> Screen {
        self.screen.lock().expect("no panic").screen().clone()
    }

    pub fn is_bold(&self, row: u16, column: u16) -> bool {
        let screen = self.screen.lock().expect("no panic");
        screen.screen().cell(row, column).is_some_and(vt100::Cell::bold)
    }

    /// Whether a program has the whole screen, or has hidden the cursor.
    pub fn is_full_screen(&self) -> bool {
        let screen = self.screen.lock().expect("no panic");
        screen.screen().alternate_screen() || screen.screen().hide_cursor()
    }

    pub fn press(&mut self, keys: &str) {
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("the terminal is there");
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
        assert!(shown.is_ok(), "{text:?} never came on the screen:\n{last}");
    }

    /// Waits for the end of the program: its exit code.
    #[track_caller]
    pub fn end(mut self) -> (i32, String) {
        wait_for("the end of the program", || {
            self.child.try_wait().expect("a child").is_some()
        });
        let status = self.child.wait().expect("it has ended");
        // Once nobody has the terminal any more, what was written last has been read.
        wait_for("the end of the output", || self.reader.is_finished());
        (status.code().expect("setsid tells a code"), self.text())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn length(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).expect("a screen has room")
}

/// `setsid` makes the terminal the one of the program, which takes code that this crate forbids.
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
    let handle = || slave.try_clone().expect("a handle can be cloned");
    setsid
        .stdin(handle())
        .stdout(handle())
        .stderr(handle())
        .spawn()
        .expect("setsid is there")
}

fn show(mut output: File, screen: &Mutex<Parser>) {
    let mut buffer = [0; 4096];
    // The end of the program is an error here.
    while let Ok(length) = output.read(&mut buffer) {
        if length == 0 {
            return;
        }
        screen.lock().expect("no panic").process(&buffer[..length]);
    }
}
