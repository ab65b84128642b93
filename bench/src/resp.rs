//! A minimal RESP client.
//!
//! The benchmark has a client to itself so that no library adds time to what is measured: requests are encoded in
//! advance, and many are written before the first reply is read.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Instant;

use crate::error::Result;
use crate::interrupt;
use crate::interruptible_stream::{InterruptibleStream, is_timeout};

const READ_BUFFER: usize = 1 << 16;
const SMALL_READ_BUFFER: usize = 1 << 8;

#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Null,
}

/// Appends a command as a RESP array, like every client library.
pub fn encode<'a>(command: impl ExactSizeIterator<Item = &'a str>, bytes: &mut Vec<u8>) {
    bytes.extend(format!("*{}\r\n", command.len()).bytes());
    for part in command {
        bytes.extend(format!("${}\r\n{part}\r\n", part.len()).bytes());
    }
}

/// One command, encoded.
pub fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(words.iter().copied(), &mut bytes);
    bytes
}

pub struct Connection {
    stream: BufReader<InterruptibleStream>,
}

impl Connection {
    pub fn open(port: u16) -> io::Result<Self> {
        Self::with_buffer(port, READ_BUFFER)
    }

    /// For one of thousands of connections.
    pub fn open_small(port: u16) -> io::Result<Self> {
        Self::with_buffer(port, SMALL_READ_BUFFER)
    }

    fn with_buffer(port: u16, size: usize) -> io::Result<Self> {
        Ok(Self {
            stream: BufReader::with_capacity(size, InterruptibleStream::connect(port)?),
        })
    }

    /// Sends a command and reads the reply. An error reply is an error.
    pub fn call(&mut self, command: &[&str]) -> Result<Reply> {
        self.send_words(command)?;
        match self.receive()? {
            Reply::Error(error) => Err(format!("{}: {error}", command.join(" ")).into()),
            reply => Ok(reply),
        }
    }

    /// A command with a bulk string as its reply.
    pub fn text(&mut self, command: &[&str]) -> Result<String> {
        match self.call(command)? {
            Reply::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            reply => Err(format!("{}: {reply:?}", command.join(" ")).into()),
        }
    }

    /// A field of INFO, if the server has it.
    pub fn info(&mut self, section: &str, field: &str) -> Result<Option<String>> {
        let text = self.text(&["INFO", section])?;
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields
            .find(|(name, _)| *name == field)
            .map(|(_, value)| value.to_owned()))
    }

    /// Of a command in INFO commandstats. `None` if it has not been run.
    pub fn command_stat(&mut self, command: &str, field: &str) -> Result<Option<f64>> {
        let stats = self
            .info("commandstats", &format!("cmdstat_{command}"))?
            .unwrap_or_default();
        let mut fields = stats.split(',').filter_map(|field| field.split_once('='));
        let value = fields.find(|(name, _)| *name == field);
        Ok(value.map(|(_, value)| value.parse()).transpose()?)
    }

    /// A number in INFO. A missing field is an error.
    pub fn info_number(&mut self, section: &str, field: &str) -> Result<f64> {
        let value = self.info(section, field)?;
        Ok(value
            .ok_or_else(|| format!("INFO {section} has no field {field}"))?
            .parse()?)
    }

    /// Sends a command without reading the reply.
    pub fn send_words(&mut self, command: &[&str]) -> io::Result<()> {
        self.send(&self::command(command))
    }

    /// Sends encoded commands.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        interrupt::check()?;
        self.stream.get_mut().write_all(bytes)
    }

    pub fn receive(&mut self) -> Result<Reply> {
        let line = self.line()?;
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return Err("protocol error: empty line".into());
        };
        Ok(match kind {
            "+" => Reply::Simple(rest.into()),
            "-" => Reply::Error(rest.into()),
            ":" => Reply::Integer(rest.parse()?),
            "$" | "*" if rest == "-1" => Reply::Null,
            "$" => Reply::Bulk(self.bulk(rest.parse()?)?),
            "*" => Reply::Array(
                (0..rest.parse()?)
                    .map(|_| self.receive())
                    .collect::<Result<_>>()?,
            ),
            _ => return Err(format!("protocol error: {line}").into()),
        })
    }

    /// `None` if no byte of a reply has arrived by `end`; the reply can still be read later.
    pub fn receive_until(&mut self, end: Instant) -> Result<Option<Reply>> {
        self.stream.get_mut().set_read_deadline(Some(end))?;
        let arrived = self.stream.fill_buf().map(|bytes| !bytes.is_empty());
        self.stream.get_mut().set_read_deadline(None)?;
        match arrived {
            Ok(true) => self.receive().map(Some),
            Ok(false) => Err("the server closed the connection".into()),
            Err(error) if is_timeout(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err("the server closed the connection".into()),
        }
    }

    fn bulk(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len + "\r\n".len()];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(len);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    #[test]
    fn reply_after_the_deadline_is_read_later() -> Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let connection = &mut Connection::open(listener.local_addr()?.port())?;
        let (mut server, _) = listener.accept()?;
        assert_eq!(connection.receive_until(Instant::now())?, None);
        server.write_all(b":7\r\n")?;
        let deadline = Instant::now() + Duration::from_secs(20);
        assert_eq!(connection.receive_until(deadline)?, Some(Reply::Integer(7)));
        drop(server);
        assert!(
            connection.receive_until(deadline).is_err(),
            "the connection is closed"
        );
        Ok(())
    }

    #[test]
    fn reply_of_every_type_is_parsed() -> Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let connection = &mut Connection::open(listener.local_addr()?.port())?;
        let (mut server, _) = listener.accept()?;
        server.write_all(
            b"+OK\r\n*-1\r\n$-1\r\n$4\r\na\r\nb\r\n*2\r\n:-7\r\n*0\r\n-ERR no\r\n-ERR no\r\n?\r\n",
        )?;
        drop(server);
        let array = Reply::Array(vec![Reply::Integer(-7), Reply::Array(vec![])]);
        let bulk = Reply::Bulk(b"a\r\nb".to_vec());
        for expected in [Reply::Simple("OK".into()), Reply::Null, Reply::Null, bulk, array] {
            assert_eq!(connection.receive()?, expected);
        }
        assert_eq!(connection.receive()?, Reply::Error("ERR no".into()));
        let error = connection.call(&["GET", "a"]).map_err(|error| error.to_string());
        assert_eq!(error, Err("GET a: ERR no".into()));
        assert!(connection.receive().is_err(), "unknown type");
        assert!(connection.receive().is_err(), "the connection is closed");
        Ok(())
    }
}
