//! The crate rslock as an application uses it, with one manager and one connection per client: `acquire_no_guard`, then
//! `unlock`. It retries until it succeeds, after a random delay of up to 200 ms, or none after every third attempt, and
//! releases after each failed attempt. (The guard does nothing on this runtime: see its `Drop`.)

use std::sync::Arc;
use std::time::Duration;

use ::rslock::{Lock, LockManager};
use tokio::runtime::Builder;

use super::async_lock::{AsyncLock, Blocking};
use super::client::{Client, ClientConfig};
use crate::error::Result;

/// Its commands in INFO commandstats, which is the only way to count them.
pub const COMMANDS: [&str; 2] = ["set", "evalsha"];

struct Rslock {
    manager: LockManager,
    key: String,
    lease: Duration,
    held: Option<Lock>,
}

pub fn open(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let client = redis::Client::open(config.servers.server.url())?;
    let runtime = Arc::new(Builder::new_current_thread().enable_all().build()?);
    let manager = LockManager::from_clients(vec![client]);
    // The first command connects, and the first release loads the script.
    let warm_up = format!("warm-up:{}", config.number);
    runtime.block_on(async {
        let lock = manager.acquire_no_guard(warm_up.as_bytes(), Duration::from_secs(10));
        manager.unlock(&lock.await?).await;
        Result::Ok(())
    })?;
    let rslock = Rslock {
        manager,
        key: config.key.into(),
        lease: Duration::from_millis(config.lease_ms),
        held: None,
    };
    Ok(Box::new(Blocking::new(&runtime, rslock)))
}

impl AsyncLock for Rslock {
    async fn acquire(&mut self) -> Result<()> {
        let lock = self.manager.acquire_no_guard(self.key.as_bytes(), self.lease);
        self.held = Some(lock.await?);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        let lock = self.held.take().ok_or("the lock is not held")?;
        self.manager.unlock(&lock).await;
        Ok(())
    }
}
