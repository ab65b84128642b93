//! The commands, for any connection of redis-rs.

use std::time::Duration;

use redis::{Arg, Cmd, ConnectionLike, FromRedisValue, ToSingleRedisArg};

use crate::error::Error;
use crate::owner::Owner;
use crate::reply::{Grant, LockInfo, Milliseconds};

/// `DLOCK.ACQUIRE key owner lease-ms [SHARED | LIMIT n] [BLOCK timeout-ms] [REQID id]`
///
/// ```no_run
/// # use std::time::Duration;
/// use redis_dlock_client::{Acquire, Command, Release};
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

    /// Waits in the server's queue for at most `timeout`, rounded up to whole milliseconds; [`Duration::MAX`]: without a
    /// timeout.
    ///
    /// This blocks every later command on the same connection: use a dedicated connection with a longer response
    /// timeout. [`Lock::acquire`](crate::Lock::acquire) waits without one.
    pub fn block(mut self, timeout: Duration) -> Self {
        let timeout_ms = match timeout {
            Duration::MAX => 0,
            timeout => whole_ms(timeout.saturating_add(Duration::from_nanos(999_999))).max(1),
        };
        self.0.arg("BLOCK").arg(timeout_ms);
        self
    }

    /// The idempotency key of the acquisition, 1 to 64 bytes: a request that is sent again does not count twice.
    pub fn request_id(mut self, id: impl ToSingleRedisArg) -> Self {
        self.0.arg("REQID").arg(id);
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

/// `DLOCK.EXTEND key owner lease-ms [FENCE fence | REQID id]`
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

/// Lua that stops a script or a function before it writes, unless the owner `ARGV[1]` holds the lock `KEYS[1]` under the
/// fencing token `ARGV[2]`. Put it first.
/// [`Guard::fenced`](crate::Guard::fenced) shows one.
pub const LUA_FENCE_CHECK: &str = "redis.call('DLOCK.GUARD', KEYS[1], ARGV[1], ARGV[2])\n";

/// `DLOCK.GUARD key owner fence command [arg ...]`: the server runs the command only if the owner holds the lock under
/// this fencing token.
/// See [`Guard::fenced`](crate::Guard::fenced).
#[must_use = "nothing is sent before `query` or `query_async`"]
pub fn fenced(key: impl ToSingleRedisArg, owner: impl ToSingleRedisArg, fence: u64, inner: &Cmd) -> Cmd {
    let mut outer = command("DLOCK.GUARD", key);
    outer.arg(owner).arg(fence);
    for argument in inner.args_iter() {
        match argument {
            Arg::Simple(bytes) => outer.arg(bytes),
            // Of a scan that has not begun.
            _ => outer.arg(0),
        };
    }
    outer
}

/// How to send one of the five commands, and its reply.
///
/// Of a pipeline, the reply is what the redis-rs type says: `Option<`[`Grant`]`>` of [`Acquire`], `u64` of [`Release`],
/// the milliseconds that remain of [`Extend`], `Option<`[`Owner`]`>` and `Option<`[`LockInfo`]`>`.
pub trait Command: Into<Cmd> {
    /// `None` of [`Acquire`]: the lock was not granted. Of [`GetOwner`]: it is free. Of [`GetInfo`]: it is free and nobody
    /// waits.
    type Reply: From<Self::Wire>;
    #[doc(hidden)]
    type Wire: FromRedisValue;

    /// Sends the command on a blocking connection.
    fn query(self, connection: &mut dyn ConnectionLike) -> Result<Self::Reply, Error> {
        let command: Cmd = self.into();
        Ok(command.query::<Self::Wire>(connection)?.into())
    }

    /// Sends the command on an asynchronous connection.
    fn query_async<C>(self, connection: &mut C) -> impl Future<Output = Result<Self::Reply, Error>> + Send
    where
        Self: Send,
        C: redis::aio::ConnectionLike + Send,
    {
        let command: Cmd = self.into();
        async move { Ok(command.query_async::<Self::Wire>(connection).await?.into()) }
    }
}

impl Command for Acquire {
    type Reply = Option<Grant>;
    type Wire = Option<Grant>;
}

impl Command for Release {
    /// How many holds the owner has left.
    type Reply = u64;
    type Wire = u64;
}

impl Command for Extend {
    /// The lease that remains.
    type Reply = Duration;
    type Wire = Milliseconds;
}

impl Command for GetOwner {
    type Reply = Option<Owner>;
    type Wire = Option<Owner>;
}

impl Command for GetInfo {
    type Reply = Option<LockInfo>;
    type Wire = Option<LockInfo>;
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

/// A command with room for its usual arguments, so that it does not grow with each of them.
fn command(name: &str, key: impl ToSingleRedisArg) -> Cmd {
    const ARGUMENTS: usize = 10;
    const BYTES: usize = 192;
    let mut command = Cmd::with_capacity(ARGUMENTS, BYTES);
    command.arg(name).arg(key);
    command
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_command_has_lock_first_then_all_arguments() {
        let inner = redis::cmd("HSCAN")
            .arg("h")
            .cursor_arg(0)
            .arg("COUNT")
            .arg(5)
            .clone();
        let outer = fenced("door", "alice", 7, &inner);
        let expected = [
            "DLOCK.GUARD",
            "door",
            "alice",
            "7",
            "HSCAN",
            "h",
            "0",
            "COUNT",
            "5",
        ];
        let expected: Vec<Vec<u8>> = expected
            .iter()
            .map(|argument| argument.as_bytes().into())
            .collect();
        assert_eq!(outer.get_packed_command(), redis::pack_command(&expected));
    }
}
