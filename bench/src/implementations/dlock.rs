//! DLOCK: waiters block in the server.

use std::time::Instant;

use super::client::{Client, ClientConfig, PERMITS};
use super::session::Session;
use crate::error::Result;
use crate::implementations::command::{Command, Implementation, KEY, LEASE_MS, OWNER, Reentry};
use crate::resp::Reply;

const ACQUIRE: [&str; 4] = ["DLOCK.ACQUIRE", KEY, OWNER, LEASE_MS];

impl Implementation {
    pub fn dlock() -> Self {
        Self {
            reentry: Reentry::Counted,
            ..Self::new(
                Command::new(&ACQUIRE, is_granted_at_once),
                Command::new(&["DLOCK.RELEASE", KEY, OWNER], |reply| {
                    *reply == Reply::Integer(0)
                }),
            )
        }
    }
}

/// A fence, one hold, a lease, no wait.
fn is_granted_at_once(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(numbers) if matches!(
        numbers[..],
        [Reply::Integer(1..), Reply::Integer(1), Reply::Integer(1..), Reply::Integer(0)]
    ))
}

/// The fence of a first hold.
pub fn fence_of(reply: &Reply) -> Result<i64> {
    if let Reply::Array(numbers) = reply
        && let [Reply::Integer(fence @ 1..), Reply::Integer(1), ..] = numbers[..]
    {
        Ok(fence)
    } else {
        Err(format!("unexpected reply: {reply:?}").into())
    }
}

struct Blocking(Session);

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
    let words = [&ACQUIRE, limit, &["BLOCK", "0"]].concat();
    let implementation = Implementation {
        acquire: Command::new(&words, |reply| fence_of(reply).is_ok()),
        ..Implementation::dlock()
    };
    let owner = format!("owner-{:06}", config.number);
    Ok(Box::new(Blocking(Session::open(config, owner, |_| {
        Ok(implementation)
    })?)))
}

impl Client for Blocking {
    /// Stays in the queue past `end`: the others stop then, so it is granted soon after.
    fn acquire(&mut self, _end: Instant) -> Result<bool> {
        match self.0.acquire()? {
            None => Ok(true),
            Some(reply) => Err(format!("unexpected reply: {reply:?}").into()),
        }
    }

    fn release(&mut self) -> Result<()> {
        self.0.release()
    }

    fn commands(&self) -> Option<u64> {
        Some(self.0.commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_reply_is_a_first_hold_without_wait() {
        let reply = |numbers: [i64; 4]| Reply::Array(numbers.map(Reply::Integer).into());
        assert!(is_granted_at_once(&reply([7, 1, 5, 0])));
        for wrong in [[0, 1, 5, 0], [7, 2, 5, 0], [7, 1, 0, 0], [7, 1, 5, 1]] {
            assert!(!is_granted_at_once(&reply(wrong)), "{wrong:?}");
        }
        assert!(!is_granted_at_once(&Reply::Null) && !is_granted_at_once(&Reply::Error("ERR".into())));
    }
}
