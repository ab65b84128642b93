//! A connection that reports disconnects, timeouts and unexpected data as values. The connections of the test kit
//! panic instead.

use std::io::{self, ErrorKind, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use redis::{Cmd, Parser, Value};

/// On loopback a live server accepts at once, even if it is stopped.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Connection {
    stream: TcpStream,
    parser: Parser,
}

/// Why there is no reply.
#[derive(Debug)]
pub enum Failure {
    Disconnected,
    TimedOut,
    /// Data arrived that is not a reply to the request.
    Unexpected(String),
}

impl Connection {
    /// `None` if the port does not accept connections.
    pub fn open(port: u16) -> Option<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self {
            stream,
            parser: Parser::new(),
        })
    }

    /// A handle that can close the connection; `None` if it is closed already.
    pub fn try_clone_stream(&self) -> Option<TcpStream> {
        self.stream.try_clone().ok()
    }

    /// Sends a command and reads the reply, which may be an error reply.
    pub fn call(&mut self, args: &[String], reply_timeout: Duration) -> Result<Value, Failure> {
        self.send(&[args])?;
        self.read(reply_timeout)
    }

    /// Sends commands, whose replies must then be read.
    pub fn send(&mut self, commands: &[&[String]]) -> Result<(), Failure> {
        self.check_no_pending_reply()?;
        let mut packed = Vec::new();
        for args in commands {
            let mut command = Cmd::new();
            args.iter().for_each(|arg| _ = command.arg(arg));
            command.write_packed_command(&mut packed);
        }
        self.stream.write_all(&packed).map_err(|_| Failure::Disconnected)
    }

    /// A second reply to the previous request would be in the socket buffer now.
    fn check_no_pending_reply(&mut self) -> Result<(), Failure> {
        self.stream
            .set_nonblocking(true)
            .map_err(|_| Failure::Disconnected)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream
            .set_nonblocking(false)
            .map_err(|_| Failure::Disconnected)?;
        match peeked {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Ok(0) | Err(_) => Err(Failure::Disconnected),
            Ok(_) => match self.read(CONNECT_TIMEOUT) {
                Ok(value) => Err(Failure::Unexpected(format!("{value:?}"))),
                Err(failure) => Err(failure),
            },
        }
    }

    /// Reads the next reply.
    pub fn read(&mut self, reply_timeout: Duration) -> Result<Value, Failure> {
        self.stream
            .set_read_timeout(Some(reply_timeout))
            .map_err(|_| Failure::Disconnected)?;
        match self.parser.parse_value(Uninterrupted(&self.stream)) {
            Ok(value) => Ok(value),
            Err(error) if error.is_timeout() => Err(Failure::TimedOut),
            Err(error) if error.is_io_error() => Err(Failure::Disconnected),
            Err(error) => Err(Failure::Unexpected(error.to_string())),
        }
    }
}

/// Retries reads that fail with EINTR: reads with a timeout do when the process is stopped and continued (`man 7
/// signal`).
struct Uninterrupted<'a>(&'a TcpStream);

impl Read for Uninterrupted<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}
