//! A connection that counts the commands sent on it, and sleeps that end at a deadline.

use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::interrupt;
use crate::resp::{Connection, Reply};

pub struct CountingConnection {
    connection: Connection,
    pub commands: u64,
}

impl CountingConnection {
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            commands: 0,
        }
    }

    /// An error reply is an error.
    pub fn call(&mut self, command: &[impl AsRef<str>]) -> Result<Reply> {
        self.commands += 1;
        let words: Vec<_> = command.iter().map(AsRef::as_ref).collect();
        self.connection.call(&words)
    }

    /// Does not read the reply.
    pub fn send(&mut self, command: &[&str]) -> Result<()> {
        self.commands += 1;
        Ok(self.connection.send_words(command)?)
    }

    pub fn receive(&mut self) -> Result<Reply> {
        self.connection.receive()
    }

    /// `None` if no reply has arrived by `end`.
    pub fn receive_until(&mut self, end: Instant) -> Result<Option<Reply>> {
        self.connection.receive_until(end)
    }

    /// For setup commands, which do not count.
    pub fn uncounted(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

pub fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Sleeps, but no longer than until `end`. False if that has been reached.
pub fn sleep_until(duration: Duration, end: Instant) -> Result<bool> {
    interrupt::check()?;
    let remaining = end.saturating_duration_since(Instant::now());
    thread::sleep(duration.min(remaining));
    Ok(duration < remaining)
}

/// An error that names the reply unless it is the expected one.
pub fn expect(is_expected: bool, reply: &Reply) -> Result<()> {
    if is_expected {
        Ok(())
    } else {
        Err(format!("unexpected reply: {reply:?}").into())
    }
}
