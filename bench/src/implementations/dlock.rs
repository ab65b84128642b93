//! DLOCK: waiters block in the server.

use std::time::Instant;

use super::counting::{CountingConnection, expect, owned};
use super::{Client, ClientConfig, PERMITS};
use crate::Result;
use crate::implementations::command::{Command, Implementation, KEY, LEASE_MS, OWNER, Reentry};
use crate::resp::Reply;

impl Implementation {
    pub fn dlock() -> Self {
        Self {
            reentry: Reentry::Counted,
            ..Self::new(
                acquire(LEASE_MS),
                Command::new(&["DLOCK.RELEASE", KEY, OWNER], |reply| {
                    *reply == Reply::Integer(0)
                }),
            )
        }
    }
}

pub fn acquire(lease_ms: &str) -> Command {
    Command::new(&["DLOCK.ACQUIRE", KEY, OWNER, lease_ms], is_granted)
}

/// A fence, one hold, a lease, no wait.
fn is_granted(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(numbers) if matches!(
        numbers[..],
        [Reply::Integer(1..), Reply::Integer(1), Reply::Integer(1..), Reply::Integer(0)]
    ))
}

struct Blocking {
    connection: CountingConnection,
    acquire: Vec<String>,
    release: Vec<String>,
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    open_with(config, &[])
}

pub fn open_shared(config: &ClientConfig) -> Result<Box<dyn Client>> {
    open_with(config, &["SHARED"])
}

pub fn open_semaphore(config: &ClientConfig) -> Result<Box<dyn Client>> {
    open_with(config, &["LIMIT", &PERMITS.to_string()])
}

fn open_with(config: &ClientConfig, limit: &[&str]) -> Result<Box<dyn Client>> {
    let owner = format!("owner-{:06}", config.number);
    let lease_ms = config.lease_ms.to_string();
    let acquire = [
        &["DLOCK.ACQUIRE", config.key, &owner, &lease_ms],
        limit,
        &["BLOCK", "0"],
    ];
    Ok(Box::new(Blocking {
        connection: CountingConnection::new(config.server.connect()?),
        acquire: owned(&acquire.concat()),
        release: owned(&["DLOCK.RELEASE", config.key, &owner]),
    }))
}

impl Client for Blocking {
    /// Stays in the queue past `end`: the others stop then, so it is granted soon after.
    fn acquire(&mut self, _end: Instant) -> Result<bool> {
        let reply = self.connection.call(&self.acquire)?;
        let is_grant = matches!(&reply, Reply::Array(numbers)
            if matches!(numbers[..], [Reply::Integer(1..), Reply::Integer(1), ..]));
        expect(is_grant, &reply)?;
        Ok(true)
    }

    fn release(&mut self) -> Result<()> {
        let reply = self.connection.call(&self.release)?;
        expect(reply == Reply::Integer(0), &reply)
    }

    fn commands(&self) -> Option<u64> {
        Some(self.connection.commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_reply_is_a_first_hold_without_wait() {
        let reply = |numbers: [i64; 4]| Reply::Array(numbers.map(Reply::Integer).into());
        assert!(is_granted(&reply([7, 1, 5, 0])));
        for wrong in [[0, 1, 5, 0], [7, 2, 5, 0], [7, 1, 0, 0], [7, 1, 5, 1]] {
            assert!(!is_granted(&reply(wrong)), "{wrong:?}");
        }
        assert!(!is_granted(&Reply::Null) && !is_granted(&Reply::Error("ERR".into())));
    }
}
