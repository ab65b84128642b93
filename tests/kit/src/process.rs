use std::env;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::{WAIT_TIMEOUT, wait_for};

const POLL_INTERVAL: Duration = Duration::from_millis(3);

/// A running server program. Dropped, it is killed: exactly this child, by its handle.
pub struct Process {
    child: Child,
    log: PathBuf,
}

/// Why a server did not start.
pub enum StartFailure {
    /// Another process has taken the port: try the next one.
    AddressInUse,
    /// It exited; this is its log.
    Exited(String),
}

/// The server program: what `DLOCK_SERVER` names, else `redis-server`.
pub fn server_program() -> OsString {
    env::var_os("DLOCK_SERVER").unwrap_or_else(|| "redis-server".into())
}

/// Sends a signal to a process that the test started and has not waited for yet. A minimal Debian has no program
/// `kill`.
pub fn signal(pid: u32, signal: Signal) {
    let process = Pid::from_raw(pid.cast_signed()).expect("a process id is positive");
    kill_process(process, signal)
        .unwrap_or_else(|error| panic!("cannot send {signal:?} to process {pid}: {error}"));
}

impl Process {
    /// Starts the server in `directory` with `config`, and returns once `is_ready`. `launcher` is the program and the
    /// arguments that precede the configuration file.
    pub fn start(
        launcher: &[OsString],
        directory: &Path,
        config: &str,
        environment: &[(String, OsString)],
        is_ready: impl Fn() -> bool,
    ) -> Result<Self, StartFailure> {
        let config_file = directory.join("server.conf");
        fs::write(&config_file, config).expect("the directory of the server is writable");
        let log = directory.join("server.log");
        let log_start = fs::read(&log).map_or(0, |text| text.len());
        let (program, arguments) = launcher.split_first().expect("a launcher names a program");
        let child = Command::new(program)
            .args(arguments)
            .arg(&config_file)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(open_log(&log))
            .stderr(open_log(&log))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
        let mut process = Self { child, log };
        let start = Instant::now();
        while !is_ready() {
            if process.has_exited() {
                let log = process.log().split_off(log_start);
                return Err(if log.contains("Address already in use") {
                    StartFailure::AddressInUse
                } else {
                    StartFailure::Exited(log)
                });
            }
            let is_expected = start.elapsed() < WAIT_TIMEOUT;
            assert!(is_expected, "the server was not ready within {WAIT_TIMEOUT:?}");
            thread::sleep(POLL_INTERVAL);
        }
        Ok(process)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn has_exited(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("the state of a child can be read")
            .is_some()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        // An error means that it has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has exited by itself.
    pub fn wait_for_exit(&mut self) {
        wait_for("the server to exit", || self.has_exited());
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("--- {} ---\n{}---", self.log.display(), self.log());
        }
    }
}

fn open_log(path: &Path) -> File {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .expect("the log is writable")
}
