//! A TCP stream whose reads have a deadline and notice SIGINT while they wait.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::interrupt;

/// Without a deadline: longer than any server takes to reply.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How often a blocked read checks for signals and its deadline.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// A read timeout of zero would mean none.
const MIN_READ_TIMEOUT: Duration = Duration::from_micros(1);

pub struct InterruptibleStream {
    stream: TcpStream,
    deadline: Option<Instant>,
}

impl InterruptibleStream {
    pub fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream,
            deadline: None,
        })
    }

    /// Applies to the reads that follow. `None`: the default timeout.
    pub fn set_read_deadline(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        self.deadline = deadline;
        self.stream.set_read_timeout(Some(POLL_INTERVAL))
    }
}

impl Read for InterruptibleStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let deadline = self.deadline.unwrap_or_else(|| Instant::now() + TIMEOUT);
        loop {
            if self.deadline.is_some() {
                let remaining = deadline.saturating_duration_since(Instant::now());
                self.stream
                    .set_read_timeout(Some(remaining.clamp(MIN_READ_TIMEOUT, POLL_INTERVAL)))?;
            }
            match self.stream.read(buffer) {
                Err(error) if is_timeout(&error) => {
                    interrupt::check()?;
                    if Instant::now() >= deadline {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                read => return read,
            }
        }
    }
}

/// Which of the two kinds is returned depends on the platform.
pub fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Write for InterruptibleStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
