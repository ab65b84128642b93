//! Asynchronous libraries as clients of a workload, which have a thread each.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::time::timeout_at;

use super::client::Client;
use crate::error::Result;
use crate::interrupt;

/// A lock of an asynchronous library.
pub trait AsyncLock: Send + 'static {
    async fn acquire(&mut self) -> Result<()>;
    async fn release(&mut self) -> Result<()>;
}

/// A client that blocks its thread meanwhile.
pub struct Blocking<L> {
    runtime: Arc<Runtime>,
    lock: L,
}

impl<L> Blocking<L> {
    pub fn new(runtime: &Arc<Runtime>, lock: L) -> Self {
        Self {
            runtime: Arc::clone(runtime),
            lock,
        }
    }
}

impl<L: AsyncLock> Client for Blocking<L> {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        interrupt::check()?;
        let acquire = self.lock.acquire();
        match self
            .runtime
            .block_on(async { timeout_at(end.into(), acquire).await })
        {
            Ok(outcome) => outcome.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    fn release(&mut self) -> Result<()> {
        self.runtime.block_on(self.lock.release())
    }

    /// Only the servers can count them.
    fn commands(&self) -> Option<u64> {
        None
    }
}
