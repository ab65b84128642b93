//! Reading from a connection that may be silent for long, without being deaf to Ctrl-C meanwhile.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::interrupt;

/// No server of ours is silent for so long.
const TIMEOUT: Duration = Duration::from_secs(20);
/// So often somebody looks whether the run is to end.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// No time at all would mean to wait for ever.
const SHORTEST_WAIT: Duration = Duration::from_micros(1);

pub struct Patient {
    stream: TcpStream,
    /// Until when to wait; None = for as long as a server may take.
    until: Option<Instant>,
}

impl Patient {
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, until: None })
    }

    /// For what is read from now on.
    pub fn wait_until(&mut self, until: Option<Instant>) -> io::Result<()> {
        self.until = until;
        self.stream.set_read_timeout(Some(LOOK_EVERY))
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let until = self.until.unwrap_or_else(|| Instant::now() + TIMEOUT);
        loop {
            if self.until.is_some() {
                let left = until.saturating_duration_since(Instant::now());
                self.stream
                    .set_read_timeout(Some(left.clamp(SHORTEST_WAIT, LOOK_EVERY)))?;
            }
            match self.stream.read(buffer) {
                Err(error) if is_timeout(&error) => {
                    interrupt::check()?;
                    if Instant::now() >= until {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                read => return read,
            }
        }
    }
}

/// Which of the two depends on the system.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
