//! The crate rslock as an application uses it, one manager and one connection a client: `acquire_no_guard`, then
//! `unlock`. Its `acquire` tries until it succeeds, with up to 200 ms at random between two tries and none after
//! each third; it releases after each failed try. (The guard does nothing on this runtime: see its `Drop`.)

use std::time::{Duration, Instant};

use ::rslock::{Lock, LockManager};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::{Client, Wanted};
use crate::{Result, interrupt};

/// What its commands are called in the server's statistics: only that counts them.
pub const COMMANDS: [&str; 2] = ["set", "evalsha"];

struct Rslock {
    runtime: Runtime,
    manager: LockManager,
    key: String,
    lease: Duration,
    held: Option<Lock>,
}

pub fn open(wanted: &Wanted) -> Result<Box<dyn Client>> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", wanted.server.port()))?;
    let mut rslock = Rslock {
        runtime: Builder::new_current_thread().enable_all().build()?,
        manager: LockManager::from_clients(vec![client]),
        key: wanted.key.into(),
        lease: Duration::from_millis(wanted.lease_ms),
        held: None,
    };
    rslock.connect(&format!("warm-up:{}", wanted.number))?;
    Ok(Box::new(rslock))
}

impl Rslock {
    /// It connects with its first command, and loads its script with its first release.
    fn connect(&mut self, key: &str) -> Result<()> {
        let manager = &self.manager;
        self.runtime.block_on(async {
            let lock = manager
                .acquire_no_guard(key.as_bytes(), Duration::from_secs(10))
                .await?;
            manager.unlock(&lock).await;
            Ok(())
        })
    }
}

impl Client for Rslock {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        interrupt::check()?;
        let left = end.saturating_duration_since(Instant::now());
        let acquire = self.manager.acquire_no_guard(self.key.as_bytes(), self.lease);
        match self.runtime.block_on(async { timeout(left, acquire).await }) {
            Ok(lock) => {
                self.held = Some(lock?);
                Ok(true)
            }
            Err(_) => Ok(false),
        }
    }

    fn release(&mut self) -> Result<()> {
        let lock = self.held.take().ok_or("nothing is held")?;
        self.runtime.block_on(self.manager.unlock(&lock));
        Ok(())
    }

    fn commands(&self) -> Option<u64> {
        None
    }
}
