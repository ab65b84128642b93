//! The requests of clients: one struct per command.

use crate::names::Limit;

/// DLOCK.ACQUIRE: see [`Acquire::SYNTAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire<'a> {
    /// Who wants to hold the lock.
    pub owner: &'a [u8],
    /// The length of the lease.
    pub lease_ms: u64,
    /// How many owners may hold the lock at once.
    pub limit: Limit,
    /// How the request waits if it cannot be granted at once.
    pub wait: Option<Wait<'a>>,
    /// The idempotency key of the request and of its hold.
    pub request_id: Option<&'a [u8]>,
    /// The fence of a new grant is at least this one, on a server of a quorum.
    pub min_fence: Option<u64>,
}

/// How a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait<'a> {
    /// How long.
    pub timeout: Timeout,
    /// The inbox that gets its answer (QUEUE); `None`: the client is blocked (BLOCK).
    pub inbox: Option<&'a [u8]>,
}

/// DLOCK.GRANTS: see [`Grants::SYNTAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants<'a> {
    /// The name of the inbox.
    pub inbox: &'a [u8],
    /// What is acknowledged: the cursor of the last reply; 0 makes the inbox.
    pub cursor: u64,
    /// How long the call waits for an answer, if there is none.
    pub block_ms: Option<u64>,
    /// How long the inbox outlives its last reader from now on.
    pub ttl_ms: Option<u64>,
}

/// Who sends a request that concerns an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller<'a> {
    /// The number of its database.
    pub db: i32,
    /// Its ACL user.
    pub user: &'a [u8],
}

/// How long a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Until it is granted.
    Infinite,
    /// At most this many milliseconds.
    Ms(u64),
}

/// DLOCK.RELEASE: see [`Release::SYNTAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release<'a> {
    /// The holder.
    pub owner: &'a [u8],
    /// The fence under which it holds the lock, if it says so.
    pub fence: Option<u64>,
    /// What to release.
    pub holds: Holds<'a>,
}

/// Which of its holds an owner releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds<'a> {
    /// One without a request id, else the latest one.
    One,
    /// All of them.
    All,
    /// The one with this request id.
    ById(&'a [u8]),
}

/// DLOCK.EXTEND: see [`Extend::SYNTAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extend<'a> {
    /// The holder.
    pub owner: &'a [u8],
    /// The new length of the lease.
    pub lease_ms: u64,
    /// Which of its grants it means.
    pub grant: GrantRef<'a>,
    /// Its fence becomes this one if it is smaller, on a server of a quorum.
    pub min_fence: Option<u64>,
}

/// How an owner says which of its grants it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantRef<'a> {
    /// The current one, whichever it is.
    Current,
    /// The one with this fence.
    Fence(u64),
    /// The one with a hold of this request id.
    RequestId(&'a [u8]),
}

impl From<Option<u64>> for GrantRef<'_> {
    /// By its fence, if one is given.
    #[inline]
    fn from(fence: Option<u64>) -> Self {
        fence.map_or(Self::Current, Self::Fence)
    }
}

/// DLOCK.GUARD, the part about the lock: see [`Guard::SYNTAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard<'a> {
    /// The holder.
    pub owner: &'a [u8],
    /// The fence under which it holds the lock.
    pub fence: u64,
}
