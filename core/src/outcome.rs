//! What a transition answers and announces.

use super::fence::Fence;
use super::name::LockName;
use super::ticket::Ticket;

/// The reply to a granted ACQUIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The fencing token.
    pub fence: Fence,
    /// The hold count of the owner.
    pub holds: u64,
    /// What remains of the lease, rounded down.
    pub lease_ms: u64,
    /// How long the request waited in the queue, rounded down.
    pub waited_ms: u64,
}

/// What became of an ACQUIRE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner holds the lock.
    Granted(Granted),
    /// The lock is taken, and the request does not block.
    NotGranted,
    /// The request waits.
    Queued(Enqueued),
}

/// A request that waits now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Its position in the queue.
    pub ticket: Ticket,
    /// The lock.
    pub name: LockName,
    /// It took over the position of a request with the same id, whose client needs a reply.
    pub replaced: bool,
}

/// A keyspace event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An owner became a holder.
    Acquired,
    /// A holder released its last hold.
    Released,
    /// A lease was extended.
    Extended,
    /// A holder whose lease had expired was removed.
    Expired,
}
