//! Clients, each in a thread of its own, that share the connections of their process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_dlock_client as single;
use redis_dlock_quorum as quorum;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout_at;

use super::network::Network;
use crate::error::Result;
use crate::workloads::contention::Client;

pub const NODE_TIMEOUT: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_secs(30);

enum Lock {
    Quorum(quorum::Lock, Option<quorum::Guard>),
    Single(single::Lock, Option<single::Guard>),
}

pub struct Blocking {
    runtime: Arc<Runtime>,
    lock: Lock,
}

/// Clients as those of one process have them: with its own runtime and connections. A client for each key.
pub fn of_process(
    network: &Network,
    is_quorum: bool,
    keys: impl Iterator<Item = String>,
) -> Result<Vec<Blocking>> {
    let runtime = Arc::new(
        Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?,
    );
    let urls = network.urls();
    let settings = quorum::Settings::default().node_timeout(NODE_TIMEOUT);
    let over_all = quorum::Locks::with(urls.iter().map(String::as_str), settings)?;
    let in_the_middle = single::Locks::open(network.median_url())?;
    let client = |key: String| Blocking {
        runtime: Arc::clone(&runtime),
        lock: if is_quorum {
            Lock::Quorum(over_all.lock(key).lease(LEASE), None)
        } else {
            Lock::Single(in_the_middle.lock(key).lease(LEASE), None)
        },
    };
    let mut clients: Vec<_> = keys.map(client).collect();
    // The first one connects.
    if let Some(first) = clients.first_mut() {
        first.acquire(Instant::now() + LEASE)?;
        first.release()?;
    }
    Ok(clients)
}

impl Lock {
    async fn acquire(&mut self) -> Result<()> {
        match self {
            Self::Quorum(lock, guard) => *guard = Some(lock.acquire().await?),
            Self::Single(lock, guard) => *guard = Some(lock.acquire().await?),
        }
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        match self {
            Self::Quorum(_, guard) => match guard.take().ok_or("not held")?.release().await {
                // On a busy machine. It goes on in the background.
                Err(quorum::Error::NoQuorum(_)) => Ok(()),
                outcome => Ok(outcome?),
            },
            Self::Single(_, guard) => Ok(guard.take().ok_or("not held")?.release().await?),
        }
    }
}

impl Client for Blocking {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
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
}
