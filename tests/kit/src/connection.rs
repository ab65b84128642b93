use std::io::{self, ErrorKind, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use redis::{Cmd, Parser, RedisResult, Value};

/// On loopback a live server accepts at once, even if it is stopped.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that speaks RESP. What goes wrong is a value: a timeout, a disconnect, data that is no reply.
/// A [`Waiter`](crate::Waiter) stands on it, and panics.
pub struct Connection {
    stream: TcpStream,
    parser: Parser,
    /// What the socket has been told, so that reading many replies is no system call more for each.
    timeout: Option<Duration>,
}

impl Connection {
    pub fn open(port: u16) -> io::Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            parser: Parser::new(),
            timeout: None,
        })
    }

    /// Another handle to the socket, which can close it.
    pub fn try_clone_stream(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// Sends a command and reads the reply, which may be an error reply.
    pub fn call(&mut self, words: &[impl AsRef<[u8]>], timeout: Duration) -> RedisResult<Value> {
        self.check_silent()?;
        self.send(&packed(words))?;
        self.read(timeout)
    }

    /// Fails if a second reply to the previous request has arrived.
    fn check_silent(&mut self) -> RedisResult<()> {
        if self.is_silent()? {
            return Ok(());
        }
        let second = format!("{:?}", self.read(CONNECT_TIMEOUT)?);
        Err((redis::ErrorKind::UnexpectedReturnType, "a second reply", second).into())
    }

    /// Sends bytes: one or more commands, or a part of one.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads the next reply. Other errors than timeouts and disconnects mean that it is none.
    pub fn read(&mut self, timeout: Duration) -> RedisResult<Value> {
        if self.timeout != Some(timeout) {
            self.stream.set_read_timeout(Some(timeout))?;
            self.timeout = Some(timeout);
        }
        self.parser.parse_value(Uninterrupted(&self.stream))
    }

    /// Whether the connection is open and nothing has arrived that was not read.
    pub fn is_silent(&self) -> io::Result<bool> {
        self.stream.set_nonblocking(true)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        match peeked {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A command as it is sent.
pub fn packed(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut command = Cmd::new();
    words.iter().for_each(|word| _ = command.arg(word.as_ref()));
    command.get_packed_command()
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
