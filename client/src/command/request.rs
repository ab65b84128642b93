use std::time::Duration;

use redis::{Cmd, ConnectionLike, FromRedisValue, ToSingleRedisArg};

use super::{Grant, LockInfo};
use crate::error::Error;
use crate::owner::Owner;

/// `DLOCK.ACQUIRE key owner lease-ms [SHARED | LIMIT n] [BLOCK timeout-ms] [REQID id] [MINFENCE fence]`
///
/// ```no_run
/// # use std::time::Duration;
/// use redis_dlock_client::{Acquire, Release};
///
/// # fn main() -> Result<(), redis_dlock_client::Error> {
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
/// use redis_dlock_client::{Acquire, Grant};
///
/// # fn main() -> Result<(), redis_dlock_client::Error> {
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
        let mut command = command("DLOCK.ACQUIRE");
        command.arg(key).arg(owner).arg(whole_ms(lease));
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

    /// Sends the request: `None` if the lock was not granted.
    pub fn query(&self, connection: &mut dyn ConnectionLike) -> Result<Option<Grant>, Error> {
        query(&self.0, connection)
    }

    /// Sends the request: `None` if the lock was not granted.
    #[cfg(feature = "locks")]
    pub async fn query_async(
        &self,
        connection: &mut impl redis::aio::ConnectionLike,
    ) -> Result<Option<Grant>, Error> {
        query_async(&self.0, connection).await
    }
}

/// `DLOCK.RELEASE key owner [FENCE fence] [ALL | REQID id]`
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `query` or `query_async`"]
pub struct Release(Cmd);

impl Release {
    /// Releases one hold.
    pub fn new(key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg) -> Self {
        let mut command = command("DLOCK.RELEASE");
        command.arg(key).arg(owner);
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

    /// Sends the request: how many holds the owner has left.
    pub fn query(&self, connection: &mut dyn ConnectionLike) -> Result<u64, Error> {
        query(&self.0, connection)
    }

    /// Sends the request: how many holds the owner has left.
    #[cfg(feature = "locks")]
    pub async fn query_async(&self, connection: &mut impl redis::aio::ConnectionLike) -> Result<u64, Error> {
        query_async(&self.0, connection).await
    }
}

/// `DLOCK.EXTEND key owner lease-ms [FENCE fence | REQID id] [MINFENCE fence]`
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `query` or `query_async`"]
pub struct Extend(Cmd);

impl Extend {
    /// Extends the lease to the longer of what remains and `lease`, in whole milliseconds, rounded down.
    pub fn new(key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg, lease: Duration) -> Self {
        let mut command = command("DLOCK.EXTEND");
        command.arg(key).arg(owner).arg(whole_ms(lease));
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

    /// Sends the request: the lease that remains. In a pipeline the reply is its milliseconds, a `u64`.
    pub fn query(&self, connection: &mut dyn ConnectionLike) -> Result<Duration, Error> {
        query(&self.0, connection).map(Duration::from_millis)
    }

    /// Sends the request: the lease that remains.
    #[cfg(feature = "locks")]
    pub async fn query_async(
        &self,
        connection: &mut impl redis::aio::ConnectionLike,
    ) -> Result<Duration, Error> {
        query_async(&self.0, connection).await.map(Duration::from_millis)
    }
}

/// `DLOCK.OWNER key`
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `query` or `query_async`"]
pub struct GetOwner(Cmd);

impl GetOwner {
    /// Asks which owner has held the lock the longest.
    pub fn new(key: impl ToSingleRedisArg) -> Self {
        let mut command = command("DLOCK.OWNER");
        command.arg(key);
        Self(command)
    }

    /// Sends the request: `None` if the lock is free.
    pub fn query(&self, connection: &mut dyn ConnectionLike) -> Result<Option<Owner>, Error> {
        query(&self.0, connection)
    }

    /// Sends the request: `None` if the lock is free.
    #[cfg(feature = "locks")]
    pub async fn query_async(
        &self,
        connection: &mut impl redis::aio::ConnectionLike,
    ) -> Result<Option<Owner>, Error> {
        query_async(&self.0, connection).await
    }
}

/// `DLOCK.INFO key`
#[derive(Clone, Debug)]
#[must_use = "nothing is sent before `query` or `query_async`"]
pub struct GetInfo(Cmd);

impl GetInfo {
    /// Asks for the holders and waiters of a lock.
    pub fn new(key: impl ToSingleRedisArg) -> Self {
        let mut command = command("DLOCK.INFO");
        command.arg(key);
        Self(command)
    }

    /// Sends the request: `None` if the lock is free and has no waiters.
    pub fn query(&self, connection: &mut dyn ConnectionLike) -> Result<Option<LockInfo>, Error> {
        query(&self.0, connection)
    }

    /// Sends the request: `None` if the lock is free and has no waiters.
    #[cfg(feature = "locks")]
    pub async fn query_async(
        &self,
        connection: &mut impl redis::aio::ConnectionLike,
    ) -> Result<Option<LockInfo>, Error> {
        query_async(&self.0, connection).await
    }
}

impl From<Acquire> for Cmd {
    fn from(request: Acquire) -> Self {
        request.0
    }
}

impl From<Release> for Cmd {
    fn from(request: Release) -> Self {
        request.0
    }
}

impl From<Extend> for Cmd {
    fn from(request: Extend) -> Self {
        request.0
    }
}

impl From<GetOwner> for Cmd {
    fn from(request: GetOwner) -> Self {
        request.0
    }
}

impl From<GetInfo> for Cmd {
    fn from(request: GetInfo) -> Self {
        request.0
    }
}

fn query<T: FromRedisValue>(command: &Cmd, connection: &mut dyn ConnectionLike) -> Result<T, Error> {
    command.query(connection).map_err(Error::from)
}

#[cfg(feature = "locks")]
async fn query_async<T: FromRedisValue>(
    command: &Cmd,
    connection: &mut impl redis::aio::ConnectionLike,
) -> Result<T, Error> {
    command.query_async(connection).await.map_err(Error::from)
}

/// A command with room for its usual arguments, so that it does not grow with each of them.
pub(super) fn command(name: &str) -> Cmd {
    const ARGUMENTS: usize = 10;
    const BYTES: usize = 192;
    let mut command = Cmd::with_capacity(ARGUMENTS, BYTES);
    command.arg(name);
    command
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
