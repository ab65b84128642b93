//! A client that retries after 10 ms.

use std::thread;
use std::time::{Duration, Instant};

use super::client::{Client, ClientConfig};
use super::session::Session;
use crate::error::Result;
use crate::implementations::command::Implementation;
use crate::interrupt;
use crate::resp::Reply;

const RETRY_INTERVAL: Duration = Duration::from_millis(10);

struct Polling(Session);

/// For commands whose reply is null if the lock is held.
pub fn open(config: &ClientConfig, implementation: Implementation, owner: String) -> Result<Box<dyn Client>> {
    Ok(Box::new(Polling(Session::open(config, owner, |_| {
        Ok(implementation)
    })?)))
}

impl Client for Polling {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        loop {
            match self.0.acquire()? {
                None => return Ok(true),
                Some(Reply::Null) => {}
                Some(reply) => return Err(format!("unexpected reply: {reply:?}").into()),
            }
            if !sleep_until(RETRY_INTERVAL, end)? {
                return Ok(false);
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        self.0.release()
    }

    fn commands(&self) -> Option<u64> {
        Some(self.0.commands)
    }
}

/// Sleeps, but no longer than until `end`. False if that has been reached.
pub fn sleep_until(duration: Duration, end: Instant) -> Result<bool> {
    interrupt::check()?;
    let remaining = end.saturating_duration_since(Instant::now());
    thread::sleep(duration.min(remaining));
    Ok(duration < remaining)
}
