//! What a transition answers.

use crate::fence::Fence;

/// The reply to a granted ACQUIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The owner holds the lock.
    Granted(Granted),
    /// The lock is taken, and the request does not block.
    NotGranted,
    /// The request waits. How many wait before it, at most [`MAX_AHEAD`], if an inbox with a name gets its answer.
    Queued(usize),
}

/// A count of the waiters before a request ends here.
pub const MAX_AHEAD: usize = 1_000;

/// What became of a request, for who counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing that the events do not tell.
    #[default]
    None,
    /// An owner became a holder.
    New,
    /// A holder has one more hold.
    Reentered,
    /// The hold of this request id existed: nothing changed.
    Repeated,
    /// The lock is taken, and the request does not block.
    NotGranted,
    /// The request waits.
    Queued,
    /// A RELEASE by an owner that had lost the lock before, or never had it.
    LateRelease,
    /// A grant whose client was gone was rolled back.
    RolledBack,
}
