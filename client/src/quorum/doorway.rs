//! The doorway: a short lock that makes the requests for another one arrive in the same order everywhere.
//!
//! Who wants a lock that others want too sends its request to all servers while it is in the doorway, and leaves it as
//! soon as that is sent. So each server has the same queue, and a release makes all of them grant the lock to the same
//! client at once. Only order and speed depend on the doorway, so it may be passed twice at once: it ends with its lease,
//! and clients that disagree about the first server have a doorway each.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::yield_now;

use super::acquire::Request;
use super::ask::ask;
use super::servers::Servers;
use crate::acquire::AcquireRequest;
use crate::error::Error;
use crate::guard::Guard;
use crate::identity::{Limit, RequestIdentity};
use crate::options::Options;
use crate::owner::Owner;

/// Added to the key. Permissions for keys must include it.
const SUFFIX: &[u8] = b":doorway";

/// The doorway, entered. Dropped, it is left.
pub(super) struct Doorway {
    guard: Guard,
    servers: Arc<Servers>,
    _turn: OwnedMutexGuard<()>,
}

impl Doorway {
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

/// Where the tasks of this process queue for doorways, by the hash of the key: so that they stay in order whichever
/// connections their requests are sent on, and need few.
#[derive(Default)]
pub(super) struct Turns([Arc<Mutex<()>>; 32]);

impl Turns {
    async fn turn(&self, key: &[u8]) -> OwnedMutexGuard<()> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let index = hasher.finish() % self.0.len() as u64;
        Arc::clone(&self.0[index as usize]).lock_owned().await
    }
}

/// Waits for the doorway of the lock, on this server, and enters it.
pub(super) async fn enter(
    servers: &Arc<Servers>,
    server: usize,
    request: &Request,
) -> Result<Doorway, Error> {
    let turn = servers.turns.turn(&request.key).await;
    let key = [&request.key, SUFFIX].concat().into();
    let request = AcquireRequest {
        identity: RequestIdentity::new(key, Owner::unique()),
        options: Options {
            limit: Limit::Mutex,
            // A client that is gone delays the others for this time.
            lease: servers.node_timeout.min(request.options.lease),
            max_hold: None,
            renews: false,
            ..request.options
        },
        replicas: None,
        min_fence: None,
    };
    let guard = ask(servers, server, request, true, None).await?;
    Ok(Doorway {
        guard,
        servers: Arc::clone(servers),
        _turn: turn,
    })
}
