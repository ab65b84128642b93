//! The module on a real server, which talks over a socket in its folder: there is no port that others could take.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Result, callgrind};

/// So often each scenario is done.
pub const ROUNDS: u64 = 1_000;

/// Under callgrind a server starts slowly.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Where the server enters the module for what is counted: a command, the reply to a waiter, and the end of its
/// wait.
const ENTRANCES: [&str; 3] = [
    "dlock::redis::command::entry*",
    "dlock::redis::blocked_client::reply*",
    "dlock::redis::blocked_client::free*",
];

pub struct Scenario {
    pub name: &'static str,
    run: fn(&mut [Connection; 2]) -> Result<()>,
}

pub const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "ACQUIRE and RELEASE",
        run: pairs,
    },
    Scenario {
        name: "ACQUIRE BLOCK, RELEASE and hand-over",
        run: hand_overs,
    },
];

/// Instructions of all rounds.
pub fn count(program: &str, module: &Path, scenario: &Scenario) -> Result<u64> {
    let mut command = callgrind::command(&ENTRANCES)?;
    let socket = command.folder().join("socket");
    let folder = command.folder().to_owned();
    command
        .program
        .arg(program)
        .args(["--port", "0", "--unixsocket"])
        .arg(&socket)
        .args(["--save", "", "--appendonly", "no", "--dir"])
        .arg(&folder)
        .arg("--loadmodule")
        .arg(module);
    let mut server = Server(command.program.spawn()?);
    let mut connections = [server.connect(&socket)?, server.connect(&socket)?];
    (scenario.run)(&mut connections)?;
    connections[0].send("SHUTDOWN NOSAVE")?;
    server.wait()?;
    command.total()
}

/// One lock, taken and given back.
fn pairs([client, _]: &mut [Connection; 2]) -> Result<()> {
    for _ in 0..ROUNDS {
        client.send("DLOCK.ACQUIRE lock:000123 owner-000001 3600000")?;
        client.expect("*4", 4)?;
        client.send("DLOCK.RELEASE lock:000123 owner-000001")?;
        client.expect(":0", 0)?;
    }
    Ok(())
}

/// Two clients, of which one waits until the other gives back.
fn hand_overs([holder, other]: &mut [Connection; 2]) -> Result<()> {
    let mut names = ["owner-000001", "owner-000002"];
    holder.send(&format!("DLOCK.ACQUIRE lock:000123 {} 3600000", names[0]))?;
    holder.expect("*4", 4)?;
    for _ in 0..ROUNDS {
        other.send(&format!("DLOCK.ACQUIRE lock:000123 {} 3600000 BLOCK 0", names[1]))?;
        holder.wait_until_somebody_is_blocked()?;
        holder.send(&format!("DLOCK.RELEASE lock:000123 {}", names[0]))?;
        other.expect("*4", 4)?;
        holder.expect(":0", 0)?;
        std::mem::swap(holder, other);
        names.swap(0, 1);
    }
    Ok(())
}

struct Connection(BufReader<UnixStream>);

impl Connection {
    /// Sends a command in the inline form.
    fn send(&mut self, command: &str) -> Result<()> {
        Ok(self.0.get_mut().write_all(format!("{command}\r\n").as_bytes())?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }

    /// A reply of one line, and of so many more that do not matter.
    fn expect(&mut self, first: &str, more: usize) -> Result<()> {
        let line = self.line()?;
        if line != first {
            return Err(format!("`{line}` in place of `{first}`").into());
        }
        (0..more).try_for_each(|_| self.line().map(drop))
    }

    fn wait_until_somebody_is_blocked(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            self.send("INFO clients")?;
            // The line with its length, the text, and an empty line at its end.
            let length: usize = self.line()?.trim_start_matches('$').parse()?;
            let (mut read, mut blocked) = (0, false);
            while read < length {
                let line = self.line()?;
                read += line.len() + "\r\n".len();
                blocked |= line == "blocked_clients:1";
            }
            self.line()?;
            if blocked {
                return Ok(());
            }
        }
        Err("the server never read a request to wait".into())
    }
}

/// Killed when dropped, whatever ends a run.
struct Server(Child);

impl Server {
    fn connect(&mut self, socket: &Path) -> Result<Connection> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait()? {
                return Err(format!("the server did not start: {status}").into());
            }
            match UnixStream::connect(socket) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    return Ok(Connection(BufReader::new(stream)));
                }
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                    thread::sleep(POLL_INTERVAL);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(format!("the server was not ready within {PATIENCE:?}").into())
    }

    fn wait(&mut self) -> Result<()> {
        let status = self.0.wait()?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the server ended with {status}").into())
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
