use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

use crate::clock::BootInstant;
use crate::command::{Acquire, Extend, Release};
use crate::owner::{Owner, random_name};

/// How many owners may hold a lock at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Mutex,
    AtMost(u32),
    Shared,
}

/// Whether and how long a request waits in the server's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Block {
    No,
    /// `None`: without a timeout.
    Until(Option<BootInstant>),
}

/// What identifies one acquisition: key, owner and request id. All its requests carry them, however often they are
/// sent.
#[derive(Clone, Debug)]
pub(crate) struct RequestIdentity {
    pub key: Arc<[u8]>,
    pub owner: Owner,
    pub id: [u8; 32],
}

impl RequestIdentity {
    pub fn new(key: Arc<[u8]>, owner: Owner) -> Self {
        Self {
            key,
            owner,
            id: random_name(),
        }
    }

    /// Another acquisition of the same lock by the same owner.
    pub fn with_new_id(&self) -> Self {
        Self::new(Arc::clone(&self.key), self.owner.clone())
    }

    pub fn acquire(&self, lease: Duration, limit: Limit, block: Block, min_fence: Option<u64>) -> Cmd {
        let mut request = Acquire::new(&*self.key, &self.owner, lease).request_id(&self.id[..]);
        request = match limit {
            Limit::Mutex => request,
            Limit::AtMost(limit) => request.limit(limit),
            Limit::Shared => request.shared(),
        };
        request = match block {
            Block::No => request,
            Block::Until(Some(until)) => request.block(until.since(BootInstant::now())),
            Block::Until(None) => request.block_indefinitely(),
        };
        if let Some(fence) = min_fence {
            request = request.min_fence(fence);
        }
        request.into()
    }

    /// Releases the hold, of which the fence is known.
    pub fn release(&self, fence: u64) -> Cmd {
        Release::new(&*self.key, &self.owner)
            .fence(fence)
            .request_id(&self.id[..])
            .into()
    }

    /// Cancels the request, whether it is queued, was granted, or never arrived.
    pub fn cancel(&self) -> Cmd {
        Release::new(&*self.key, &self.owner)
            .request_id(&self.id[..])
            .into()
    }

    pub fn extend(&self, lease: Duration, fence: u64) -> Cmd {
        Extend::new(&*self.key, &self.owner, lease).fence(fence).into()
    }

    /// Extends the hold under whatever fence.
    #[cfg(feature = "quorum")]
    pub fn extend_by_id(&self, lease: Duration) -> Extend {
        Extend::new(&*self.key, &self.owner, lease).request_id(&self.id[..])
    }

    /// Extends nothing, for an owner that holds nothing: the error says whether the server could grant locks.
    #[cfg(feature = "quorum")]
    pub fn extend_any(&self) -> Cmd {
        Extend::new(&*self.key, &self.owner, Duration::from_millis(1)).into()
    }
}
