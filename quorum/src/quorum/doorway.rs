//! The doorway: a short lock that makes the requests for another one arrive in the same order everywhere.
//!
//! Who wants a lock that others want too sends its request to all servers while it is in the doorway, and leaves it as
//! soon as that is sent. So each server has the same queue, and a release makes all of them grant the lock to the same
//! client at once. Only order and speed depend on the doorway, so it may be passed twice at once: it ends with its lease,
//! and clients that disagree about the first server have a doorway each.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;
use tokio::task::yield_now;

use super::servers::Servers;
use crate::guard::Guard;

/// The doorway, entered. Dropped, it is left.
pub(super) struct Doorway {
    guard: Guard,
    servers: Arc<Servers>,
    _turn: OwnedMutexGuard<()>,
}

impl Doorway {
    pub fn new(guard: Guard, servers: Arc<Servers>, turn: OwnedMutexGuard<()>) -> Self {
        Self {
            guard,
            servers,
            _turn: turn,
        }
    }

    /// Larger than that of every earlier request which waits for the lock.
    pub fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// Called for each request that was handed to the runtime, and when all are made. With the last call the doorway is
    /// left: in the same runtime, which sends those requests first. On the renewal thread, the release might overtake
    /// them.
    pub fn leave(self: Arc<Self>) {
        if let Some(Self { guard, servers, .. }) = Arc::into_inner(self) {
            servers.renewal_thread().spawn_here(async move {
                yield_now().await;
                // Otherwise it is repeated in the background, or ends with its lease.
                drop(guard.release().await);
            });
        }
    }
}
