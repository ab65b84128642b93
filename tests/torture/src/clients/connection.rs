//! A connection that survives whatever happens to it.

use std::io::{self, ErrorKind, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use redis::{Cmd, Parser, Value};

/// Loopback: a server that lives accepts at once, even a stopped one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to a server, or to a proxy before it.
pub struct Connection {
    stream: TcpStream,
    parser: Parser,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    /// The connection ended.
    Lost,
    /// Nothing came in time.
    Silent,
    /// Something came that nobody had asked for.
    Strange(String),
}

/// Cuts a connection from another thread, as the death of its client would.
pub struct Scissors(TcpStream);

impl Scissors {
    /// Both sides see the end.
    pub fn cut(&self) {
        // An error means that it has ended already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Connection {
    /// `None` when nobody accepts.
    pub fn open(port: u16) -> Option<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self {
            stream,
            parser: Parser::new(),
        })
    }

    /// `None` when the connection has ended.
    pub fn scissors(&self) -> Option<Scissors> {
        self.stream.try_clone().ok().map(Scissors)
    }

    /// Sends a command and reads the answer, which may be an error of the server.
    pub fn ask(&mut self, words: &[String], patience: Duration) -> Result<Value, Failure> {
        self.expect_nothing()?;
        let mut command = Cmd::new();
        words.iter().for_each(|word| _ = command.arg(word));
        self.stream
            .write_all(&command.get_packed_command())
            .map_err(|_| Failure::Lost)?;
        self.read(patience)
    }

    /// A second answer to the last request would be here.
    fn expect_nothing(&mut self) -> Result<(), Failure> {
        self.stream.set_nonblocking(true).map_err(|_| Failure::Lost)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).map_err(|_| Failure::Lost)?;
        match peeked {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Ok(0) | Err(_) => Err(Failure::Lost),
            Ok(_) => match self.read(CONNECT_TIMEOUT) {
                Ok(value) => Err(Failure::Strange(format!("{value:?}"))),
                Err(failure) => Err(failure),
            },
        }
    }

    fn read(&mut self, patience: Duration) -> Result<Value, Failure> {
        self.stream
            .set_read_timeout(Some(patience))
            .map_err(|_| Failure::Lost)?;
        match self.parser.parse_value(Uninterrupted(&self.stream)) {
            Ok(value) => Ok(value),
            Err(error) if error.is_timeout() => Err(Failure::Silent),
            Err(error) if error.is_io_error() => Err(Failure::Lost),
            Err(error) => Err(Failure::Strange(error.to_string())),
        }
    }
}

/// A read with a timeout ends with an error when the process is stopped meanwhile and goes on (`man 7 signal`):
/// nothing has happened to the connection.
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
