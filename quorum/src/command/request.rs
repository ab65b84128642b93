use std::time::Duration;

use redis::{Cmd, ConnectionLike, ToSingleRedisArg};

use super::reply::{Grant, LockInfo, Milliseconds};
use crate::error::Error;
use crate::owner::Owner;

/// `DLOCK.ACQUIRE key owner lease-ms [SHARED | LIMIT n] [BLOCK timeout-ms] [REQID id] [MINFENCE fence]`
///
/// ```no_run
/// # use std::time::Duration;
/// use redis_dlock_quorum::{Acquire, Release};
///
/// # fn main() -> Result<(), redis_dlock_quorum::Error> {
/// let mut connection = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
/// let request = Acquire::new("orders:42", "alice", Duration::from_secs(30)).limit(3).request_id("7f3a");
/// if let Some(grant) = request.query(&mut connection)? {
///     println!("fence {}", grant.fence);
///     Release::new("orders:42", "alice").fence(grant.fence).query(&mut connection)?;
/// }
/// # Ok(()) }
/// ```
///
/// A pipeline takes it as a command; the reply is an `Option<`[`Grant`]`>`:
///
/// ```no_run
/// # use std::time::Duration;
/// use redis_dlock_quorum::{Acquire, Grant};
///
/// # fn main() -> Result<(), redis_dlock_quorum::Error> {
/// # let mut connection = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
/// let lease = Duration::from_secs(30);
/// let (first, second): (Option<Grant>, Option<Grant>) = redis::pipe()
///     .add_command(Acquire::new("orders:42", "alice", lease).into())
///     .add_command(Acquire::new("orders:43", "alice", lease).into())
///     .query(&mut connection)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `query` or `query_async`"]
pub struct Acquire(Cmd);

impl Acquire {
    /// Requests an exclusive lock for a lease of at least 1 ms, in whole milliseconds, rounded down.
    pub fn new(key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg, lease: Duration) -> Self {
        let mut command = command("DLOCK.ACQUIRE", key);
        command.arg(owner).arg(whole_ms(lease));
        Self(command)
    }

    /// Any number of owners may share the lock.
    pub fn shared(mut self) -> Self {
        self.0.arg("SHARED");
        self
    }

    /// At most `limit` owners may hold the lock at once.
    pub fn limit(mut self, limit: u32) -> Self {
        self.0.arg("LIMIT").arg(limit);
        self
    }

    /// Waits in the server's queue for at most `timeout`, rounded up to whole milliseconds.
    ///
    /// This blocks every later command on the same connection: use a dedicated connection with a longer response
    /// timeout.
    pub fn block(mut self, timeout: Duration) -> Self {
        let timeout_ms = whole_ms(timeout.saturating_add(Duration::from_nanos(999_999))).max(1);
        self.0.arg("BLOCK").arg(timeout_ms);
        self
    }

    /// Waits in the server's queue without a timeout. See [`Acquire::block`].
    pub fn block_indefinitely(mut self) -> Self {
        self.0.arg("BLOCK").arg(0);
        self
    }

    /// The idempotency key of the acquisition, 1 to 64 bytes: a request that is sent again does not count twice.
    pub fn request_id(mut self, id: impl ToSingleRedisArg) -> Self {
        self.0.arg("REQID").arg(id);
        self
    }

    /// The fencing token of a new grant is at least this one: for locks over several servers.
    pub fn min_fence(mut self, fence: u64) -> Self {
        self.0.arg("MINFENCE").arg(fence);
        self
    }
}

/// `DLOCK.RELEASE key owner [FENCE fence] [ALL | REQID id]`
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `query` or `query_async`"]
pub struct Release(Cmd);

impl Release {
    /// Releases one hold.
    pub fn new(key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg) -> Self {
        let mut command = command("DLOCK.RELEASE", key);
        command.arg(owner);
        Self(command)
    }

    /// Only if the owner holds the lock under this fencing token.
    pub fn fence(mut self, fence: u64) -> Self {
        self.0.arg("FENCE").arg(fence);
        self
    }

    /// Releases all holds of the owner.
    pub fn all(mut self) -> Self {
        self.0.arg("ALL");
        self
    }

    /// Releases the hold of this request id, or cancels the waiting request.
    pub fn request_id(mut self, id: impl ToSingleRedisArg) -> Self {
        self.0.arg("REQID").arg(id);
        self
    }
}

/// `DLOCK.EXTEND key owner lease-ms [FENCE fence | REQID id] [MINFENCE fence]`
///
/// In a pipeline the reply is the remaining lease in milliseconds, a `u64`.
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `query` or `query_async`"]
pub struct Extend(Cmd);

impl Extend {
    /// Extends the lease to the longer of what remains and `lease`, in whole milliseconds, rounded down.
    pub fn new(key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg, lease: Duration) -> Self {
        let mut command = command("DLOCK.EXTEND", key);
        command.arg(owner).arg(whole_ms(lease));
        Self(command)
    }

    /// Only if the owner holds the lock under this fencing token.
    pub fn fence(mut self, fence: u64) -> Self {
        self.0.arg("FENCE").arg(fence);
        self
    }

    /// Only if the owner has the hold of this request id. Not together with a fencing token.
    pub fn request_id(mut self, id: impl ToSingleRedisArg) -> Self {
        self.0.arg("REQID").arg(id);
        self
    }

    /// Raises the fencing token of an exclusive lock to this one: for locks over several servers.
    pub fn min_fence(mut self, fence: u64) -> Self {
        self.0.arg("MINFENCE").arg(fence);
        self
    }
}

/// `DLOCK.OWNER key`
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `query` or `query_async`"]
pub struct GetOwner(Cmd);

impl GetOwner {
    /// Asks which owner has held the lock the longest.
    pub fn new(key: impl ToSingleRedisArg) -> Self {
        Self(command("DLOCK.OWNER", key))
    }
}

/// `DLOCK.INFO key`
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `query` or `query_async`"]
pub struct GetInfo(Cmd);

impl GetInfo {
    /// Asks for the holders and waiters of a lock.
    pub fn new(key: impl ToSingleRedisArg) -> Self {
        Self(command("DLOCK.INFO", key))
    }
}

/// What the commands have in common: how to send one, and its reply.
macro_rules! request {
    ($request:ident, $wire:ty => $reply:ty, $doc:literal) => {
        impl $request {
            #[doc = $doc]
            pub fn query(&self, connection: &mut dyn ConnectionLike) -> Result<$reply, Error> {
                Ok(self.0.query::<$wire>(connection)?.into())
            }

            #[doc = $doc]
            #[cfg(feature = "locks")]
            pub async fn query_async<C>(&self, connection: &mut C) -> Result<$reply, Error>
            where
                C: redis::aio::ConnectionLike,
            {
                Ok(self.0.query_async::<$wire>(connection).await?.into())
            }
        }

        impl From<$request> for Cmd {
            fn from(request: $request) -> Self {
                request.0
            }
        }
    };
}

request!(Acquire, Option<Grant> => Option<Grant>, "Sends the request: `None` if the lock was not granted.");
request!(Release, u64 => u64, "Sends the request: how many holds the owner has left.");
request!(Extend, Milliseconds => Duration, "Sends the request: the lease that remains.");
request!(GetOwner, Option<Owner> => Option<Owner>, "Sends the request: `None` if the lock is free.");
request!(GetInfo, Option<LockInfo> => Option<LockInfo>, "Sends the request: `None` if the lock is free and has no waiters.");

/// A command with room for its usual arguments, so that it does not grow with each of them.
pub(super) fn command(name: &str, key: impl ToSingleRedisArg) -> Cmd {
    const ARGUMENTS: usize = 10;
    const BYTES: usize = 192;
    let mut command = Cmd::with_capacity(ARGUMENTS, BYTES);
    command.arg(name).arg(key);
    command
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
