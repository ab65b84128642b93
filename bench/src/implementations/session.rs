//! A connection that sends the commands of one implementation for one lock and owner, and counts them.

use super::client::ClientConfig;
use super::command::{Command, Implementation, Names};
use crate::error::Result;
use crate::resp::{Connection, Reply};

pub struct Session {
    connection: Connection,
    implementation: Implementation,
    names: Names,
    pub commands: u64,
}

impl Session {
    /// Setup commands do not count.
    pub fn open(
        config: &ClientConfig,
        owner: String,
        implementation: impl FnOnce(&mut Connection) -> Result<Implementation>,
    ) -> Result<Self> {
        let mut connection = config.servers.server.connect()?;
        Ok(Self {
            implementation: implementation(&mut connection)?,
            connection,
            names: config.names(owner),
            commands: 0,
        })
    }

    /// `None` if the lock was granted, else the reply.
    pub fn acquire(&mut self) -> Result<Option<Reply>> {
        self.commands += 1;
        let acquire = &self.implementation.acquire;
        let reply = call(&mut self.connection, acquire, &self.names)?;
        Ok(acquire.check(&reply).is_err().then_some(reply))
    }

    /// Sends all commands of a release, with a new request id.
    pub fn release(&mut self) -> Result<()> {
        self.names.request_id = fastrand::u128(..);
        for command in self.implementation.release_commands() {
            self.commands += 1;
            command.check(&call(&mut self.connection, command, &self.names)?)?;
        }
        Ok(())
    }
}

fn call(connection: &mut Connection, command: &Command, names: &Names) -> Result<Reply> {
    let words = command.words(names);
    connection.call(&words.iter().map(String::as_str).collect::<Vec<_>>())
}
