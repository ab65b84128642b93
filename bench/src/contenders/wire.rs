//! What most contenders' clients are made of: a connection that counts commands, and pauses that end in time.

use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::interrupt;
use crate::resp::{Connection, Reply};

pub struct Wire {
    connection: Connection,
    pub commands: u64,
}

impl Wire {
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            commands: 0,
        }
    }

    /// An error reply is an error.
    pub fn call(&mut self, command: &[&str]) -> Result<Reply> {
        self.commands += 1;
        self.connection.call(command)
    }

    /// Without waiting for the reply.
    pub fn send(&mut self, command: &[&str]) -> Result<()> {
        self.commands += 1;
        Ok(self.connection.send_words(command)?)
    }

    pub fn receive(&mut self) -> Result<Reply> {
        self.connection.receive()
    }

    /// None when nothing came in time.
    pub fn receive_until(&mut self, end: Instant) -> Result<Option<Reply>> {
        self.connection.receive_until(end)
    }

    /// What a contender does not count as its own: before it begins.
    pub fn unlogged(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// Sleeps, at most until `end`. False when that has come.
pub fn pause(duration: Duration, end: Instant) -> Result<bool> {
    interrupt::check()?;
    let left = end.saturating_duration_since(Instant::now());
    thread::sleep(duration.min(left));
    Ok(duration < left)
}

/// The reply that was expected, or an error that names the one that came.
pub fn expect(is_right: bool, reply: &Reply) -> Result<()> {
    if is_right {
        Ok(())
    } else {
        Err(format!("an unexpected reply: {reply:?}").into())
    }
}
