//! Just enough of the protocol: no client library, so that nothing stands between the bytes and the server.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Instant;

use crate::patient::{Patient, is_timeout};
use crate::{Result, interrupt};

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

/// Appends a command in the form in which every client library sends it.
pub fn encode<'a>(command: impl ExactSizeIterator<Item = &'a str>, bytes: &mut Vec<u8>) {
    bytes.extend(format!("*{}\r\n", command.len()).bytes());
    for part in command {
        bytes.extend(format!("${}\r\n{part}\r\n", part.len()).bytes());
    }
}

pub struct Connection {
    stream: BufReader<Patient>,
}

impl Connection {
    pub fn open(port: u16) -> io::Result<Self> {
        Self::with_buffer(port, READ_BUFFER)
    }

    /// For one of very many connections.
    pub fn open_small(port: u16) -> io::Result<Self> {
        Self::with_buffer(port, SMALL_READ_BUFFER)
    }

    fn with_buffer(port: u16, size: usize) -> io::Result<Self> {
        Ok(Self {
            stream: BufReader::with_capacity(size, Patient::connect(port)?),
        })
    }

    /// One command; an error reply is an error.
    pub fn call(&mut self, command: &[&str]) -> Result<Reply> {
        self.send_words(command)?;
        match self.receive()? {
            Reply::Error(error) => Err(format!("{}: {error}", command.join(" ")).into()),
            reply => Ok(reply),
        }
    }

    /// A command that is answered with text.
    pub fn text(&mut self, command: &[&str]) -> Result<String> {
        match self.call(command)? {
            Reply::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            reply => Err(format!("{}: {reply:?}", command.join(" ")).into()),
        }
    }

    /// A field of INFO.
    pub fn info(&mut self, section: &str, field: &str) -> Result<Option<String>> {
        let text = self.text(&["INFO", section])?;
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields
            .find(|(name, _)| *name == field)
            .map(|(_, value)| value.to_owned()))
    }

    /// A field of INFO that every server has.
    pub fn info_number(&mut self, section: &str, field: &str) -> Result<f64> {
        let value = self
            .info(section, field)?
            .ok_or_else(|| format!("INFO {section} without {field}"))?;
        Ok(value.parse()?)
    }

    /// Writes one command.
    pub fn send_words(&mut self, command: &[&str]) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode(command.iter().copied(), &mut bytes);
        self.send(&bytes)
    }

    /// Writes commands that are bytes already.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        interrupt::check()?;
        self.stream.get_mut().write_all(bytes)
    }

    pub fn receive(&mut self) -> Result<Reply> {
        let line = self.line()?;
        let Some((kind, rest)) = line.split_at_checked(1) else {
            return Err("an empty line".into());
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
            _ => return Err(format!("not a reply: {line}").into()),
        })
    }

    /// A reply of which something came until `end`; else None, and the connection is as before.
    pub fn receive_until(&mut self, end: Instant) -> Result<Option<Reply>> {
        self.stream.get_mut().wait_until(Some(end))?;
        let came = self.stream.fill_buf().map(|bytes| !bytes.is_empty());
        self.stream.get_mut().wait_until(None)?;
        match came {
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
    fn a_reply_that_is_late_can_be_read_later() -> Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let connection = &mut Connection::open(listener.local_addr()?.port())?;
        let (mut server, _) = listener.accept()?;
        assert_eq!(connection.receive_until(Instant::now())?, None);
        server.write_all(b":7\r\n")?;
        let patience = Instant::now() + Duration::from_secs(20);
        assert_eq!(connection.receive_until(patience)?, Some(Reply::Integer(7)));
        drop(server);
        assert!(
            connection.receive_until(patience).is_err(),
            "the connection is closed"
        );
        Ok(())
    }

    #[test]
    fn replies_of_every_kind_are_read_and_errors_are_seen() -> Result<()> {
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
        assert_eq!(
            connection.call(&["GET", "a"]).map_err(|error| error.to_string()),
            Err("GET a: ERR no".into())
        );
        assert!(connection.receive().is_err(), "no such kind of reply");
        assert!(connection.receive().is_err(), "the connection is closed");
        Ok(())
    }
}
