//! The rules of redsync for Go: github.com/go-redsync/redsync at 5560bd2, `mutex.go` (`lockContext`, `acquire`,
//! `release`, `actOnPoolsAsync`), `redsync.go` (50 to 250 ms at random between two tries, a quorum of more than
//! half) and `scripts.go` (`deleteScript`). After each failed try it releases on every server, though it may hold
//! nothing there.
//!
//! It gives up after 32 tries; here it begins again.

use std::time::{Duration, Instant};

use super::wire::{Wire, pause};
use super::{Client, Wanted};
use crate::Result;
use crate::contenders::command::{is_ok, is_one};
use crate::resp::Reply;
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
    /// One a server.
    wires: Vec<Wire>,
    key: String,
    value: String,
    expiry_ms: String,
    delete: String,
}

pub fn open(wanted: &Wanted) -> Result<Box<dyn Client>> {
    open_on(wanted, &[wanted.server])
}

/// On a quorum of five independent servers.
pub fn open_quorum(wanted: &Wanted) -> Result<Box<dyn Client>> {
    let servers: Vec<_> = std::iter::once(wanted.server).chain(wanted.others).collect();
    open_on(wanted, &servers)
}

fn open_on(wanted: &Wanted, servers: &[&Server]) -> Result<Box<dyn Client>> {
    let mut redsync = Redsync {
        wires: Vec::new(),
        key: wanted.key.into(),
        // As long as 16 random bytes in base 64, which it takes.
        value: format!("{:024}", wanted.number),
        expiry_ms: wanted.lease_ms.to_string(),
        delete: String::new(),
    };
    for server in servers {
        let mut wire = Wire::new(server.connect()?);
        redsync.delete = super::load_script(wire.unlogged(), DELETE)?;
        redsync.wires.push(wire);
    }
    Ok(Box::new(redsync))
}

/// Asks all servers side by side. Returns how many answered so.
fn on_all(wires: &mut [Wire], command: &[&str], is_yes: fn(&Reply) -> bool) -> Result<usize> {
    for wire in &mut *wires {
        wire.send(command)?;
    }
    let mut yes = 0;
    for wire in wires {
        match wire.receive()? {
            Reply::Error(error) => return Err(error.into()),
            reply => yes += usize::from(is_yes(&reply)),
        }
    }
    Ok(yes)
}

impl Redsync {
    fn is_quorum(&self, servers: usize) -> bool {
        servers > self.wires.len() / 2
    }

    /// Returns on how many servers something was released.
    fn delete(&mut self) -> Result<usize> {
        let command = ["EVALSHA", &self.delete, "1", &self.key, &self.value];
        on_all(&mut self.wires, &command, is_one)
    }
}

impl Client for Redsync {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        loop {
            let command = ["SET", &self.key, &self.value, "PX", &self.expiry_ms, "NX"];
            let granted = on_all(&mut self.wires, &command, is_ok)?;
            if self.is_quorum(granted) {
                return Ok(true);
            }
            self.delete()?;
            let delay_ms = fastrand::u64(MIN_RETRY_DELAY_MS..MAX_RETRY_DELAY_MS);
            if !pause(Duration::from_millis(delay_ms), end)? {
                return Ok(false);
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        let released = self.delete()?;
        if self.is_quorum(released) {
            Ok(())
        } else {
            Err(format!("released on {released} servers only").into())
        }
    }

    fn commands(&self) -> Option<u64> {
        Some(self.wires.iter().map(|wire| wire.commands).sum())
    }
}
