//! The crate rslock as an application uses it, with one manager and one connection per client: `acquire_no_guard`, then
//! `unlock`. It retries until it succeeds, after a random delay of up to 200 ms, or none after every third attempt, and
//! releases after each failed attempt. (The guard does nothing on this runtime: see its `Drop`.)

use std::time::{Duration, Instant};

use ::rslock::{Lock, LockManager};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::{Client, ClientConfig};
use crate::{Result, interrupt};

/// Its commands in INFO commandstats, which is the only way to count them.
pub const COMMANDS: [&str; 2] = ["set", "evalsha"];

struct Rslock {
    runtime: Runtime,
    manager: LockManager,
    key: String,
    lease: Duration,
    held: Option<Lock>,
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let client = redis::Client::open(config.servers.server.url())?;
    let rslock = Rslock {
        runtime: Builder::new_current_thread().enable_all().build()?,
        manager: LockManager::from_clients(vec![client]),
        key: config.key.into(),
        lease: Duration::from_millis(config.lease_ms),
        held: None,
    };
    // The first command connects, and the first release loads the script.
    let warm_up = format!("warm-up:{}", config.number);
    let lock = rslock
        .manager
        .acquire_no_guard(warm_up.as_bytes(), Duration::from_secs(10));
    let lock = rslock.runtime.block_on(lock)?;
    rslock.runtime.block_on(rslock.manager.unlock(&lock));
    Ok(Box::new(rslock))
}

impl Client for Rslock {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        interrupt::check()?;
        let remaining = end.saturating_duration_since(Instant::now());
        let acquire = self.manager.acquire_no_guard(self.key.as_bytes(), self.lease);
        match self.runtime.block_on(async { timeout(remaining, acquire).await }) {
            Ok(lock) => {
                self.held = Some(lock?);
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    fn release(&mut self) -> Result<()> {
        let lock = self.held.take().ok_or("the lock is not held")?;
        self.runtime.block_on(self.manager.unlock(&lock));
        Ok(())
    }

    fn commands(&self) -> Option<u64> {
        None
    }
}
