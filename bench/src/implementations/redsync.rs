//! redsync for Go: github.com/go-redsync/redsync at 5560bd2, `mutex.go` (`lockContext`, `acquire`,
//! `release`, `actOnPoolsAsync`), `redsync.go` (a random delay of 50 to 250 ms between attempts, a quorum of more
//! than half) and `scripts.go` (`deleteScript`). After each failed attempt it releases on every server, even where it
//! holds nothing.
//!
//! redsync fails after 32 attempts; here it starts over.

use std::time::{Duration, Instant};

use super::client::{Client, ClientConfig};
use super::polling::sleep_until;
use crate::error::Result;
use crate::implementations::command::{is_ok, is_one, load_script};
use crate::resp::{Connection, Reply};
use crate::server::Server;

pub const DELETE: &str = r#"
	local val = redis.call("GET", KEYS[1])
	if val == ARGV[1] then
		return redis.call("DEL", KEYS[1])
	elseif val == false then
		return -1
	else
		return 0
	end
"#;
const MIN_RETRY_DELAY_MS: u64 = 50;
const MAX_RETRY_DELAY_MS: u64 = 250;

struct Redsync {
    /// One per server.
    connections: Vec<Connection>,
    key: String,
    value: String,
    expiry_ms: String,
    delete: String,
    commands: usize,
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    open_on(config, &[&config.servers.server])
}

/// On a quorum of five independent servers.
pub fn open_quorum(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let servers = std::iter::once(&config.servers.server).chain(&config.servers.others);
    open_on(config, &servers.collect::<Vec<_>>())
}

fn open_on(config: &ClientConfig, servers: &[&Server]) -> Result<Box<dyn Client>> {
    let mut redsync = Redsync {
        connections: Vec::new(),
        key: config.key.into(),
        // As long as the 16 random bytes in base64 that redsync uses.
        value: format!("{:024}", config.number),
        expiry_ms: config.lease_ms.to_string(),
        delete: String::new(),
        commands: 0,
    };
    for server in servers {
        let mut connection = server.connect()?;
        redsync.delete = load_script(&mut connection, DELETE)?;
        redsync.connections.push(connection);
    }
    Ok(Box::new(redsync))
}

/// Sends the command to all servers at once. Returns how many replies match.
fn on_all(connections: &mut [Connection], command: &[&str], is_yes: fn(&Reply) -> bool) -> Result<usize> {
    for connection in &mut *connections {
        connection.send_words(command)?;
    }
    let mut yes = 0;
    for connection in connections {
        match connection.receive()? {
            Reply::Error(error) => return Err(error.into()),
            reply => yes += usize::from(is_yes(&reply)),
        }
    }
    Ok(yes)
}

impl Redsync {
    fn is_quorum(&self, servers: usize) -> bool {
        servers > self.connections.len() / 2
    }

    /// Returns the number of servers that released the lock.
    fn delete(&mut self) -> Result<usize> {
        self.commands += self.connections.len();
        let command = ["EVALSHA", &self.delete, "1", &self.key, &self.value];
        on_all(&mut self.connections, &command, is_one)
    }
}

impl Client for Redsync {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        loop {
            self.commands += self.connections.len();
            let command = ["SET", &self.key, &self.value, "PX", &self.expiry_ms, "NX"];
            let granted = on_all(&mut self.connections, &command, is_ok)?;
            if self.is_quorum(granted) {
                return Ok(true);
            }
            self.delete()?;
            let delay_ms = fastrand::u64(MIN_RETRY_DELAY_MS..MAX_RETRY_DELAY_MS);
            if !sleep_until(Duration::from_millis(delay_ms), end)? {
                return Ok(false);
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        let released = self.delete()?;
        if self.is_quorum(released) {
            Ok(())
        } else {
            Err(format!("released on only {released} servers").into())
        }
    }

    fn commands(&self) -> Option<u64> {
        Some(self.commands as u64)
    }
}
