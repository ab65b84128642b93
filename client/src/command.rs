//! The commands and their replies, for any connection of redis-rs.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use redis::{
    Arg, Cmd, ConnectionLike, FromRedisValue, ParsingError, RedisWrite, ToRedisArgs, ToSingleRedisArg, Value,
};

use crate::clock::{BootInstant, safe_deadline};
use crate::error::Error;

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

/// How to send one of these commands on a connection of your own, without a guard and without renewal.
///
/// ```no_run
/// use std::time::Duration;
///
/// use redis_dlock_client::{Acquire, Command, Release};
///
/// fn once() -> Result<(), Box<dyn std::error::Error>> {
///     let mut connection = redis::Client::open("redis://127.0.0.1:7379/")?.get_connection()?;
///     let request = Acquire::new("orders:42", "alice", Duration::from_secs(30));
///     if let Some(grant) = request.query(&mut connection)? {
///         Release::new("orders:42", "alice").fence(grant.fence).query(&mut connection)?;
///     }
///     Ok(())
/// }
/// ```
///
/// In a pipeline, read the replies as these types: `Option<`[`Grant`]`>` for [`Acquire`], `u64` for [`Release`] and for
/// [`Extend`] (the milliseconds that remain), `Option<`[`Owner`]`>` and `Option<`[`LockInfo`]`>` for the others.
pub trait Command: Into<Cmd> {
    /// `None` for [`Acquire`]: the lock was not granted. For [`GetOwner`]: it is free. For [`GetInfo`]: it is free and
    /// nobody waits.
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

/// The owner of a lock: any string of 1 to 512 bytes.
///
/// An owner is neither a thread nor a connection. All who use the same owner share its locks: another acquisition by
/// the same owner is granted at once and counted. Concurrent tasks need owners of their own.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<[u8]>);

impl Owner {
    /// A unique owner: `host:pid:random`.
    pub fn unique() -> Self {
        Self(ProcessName::new().name.into())
    }

    /// The bytes of the owner.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The name of a process, which no other process has.
#[derive(Debug)]
pub(crate) struct ProcessName {
    /// `host:pid:random`.
    name: Vec<u8>,
    /// The random part.
    pub random: [u8; 32],
}

impl ProcessName {
    pub fn new() -> Self {
        let (pid, random) = (process::id(), random_name());
        // An owner has at most 512 bytes.
        let host = rustix::system::uname();
        let host = host.nodename().to_bytes();
        let host = &host[..host.len().min(255)];
        Self {
            name: [host, format!(":{pid}:").as_bytes(), &random].concat(),
            random,
        }
    }

    /// The owner of one acquisition: `host:pid:random:number`.
    pub fn owner(&self, number: u64) -> Owner {
        let mut name = Vec::with_capacity(self.name.len() + 21);
        name.extend_from_slice(&self.name);
        // Nothing fails that writes to memory.
        let _ = write!(name, ":{number}");
        Owner(name.into())
    }
}

/// 128 random bits as 32 hexadecimal digits. Forked processes continue with the same random numbers; their pids make the
/// names unique.
pub(crate) fn random_name() -> [u8; 32] {
    name_of(rand::random(), process::id())
}

fn name_of(random: u128, pid: u32) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let bits = random ^ u128::from(pid);
    std::array::from_fn(|n| DIGITS[(bits >> (4 * n)) as usize & 15])
}

impl<T: AsRef<[u8]>> From<T> for Owner {
    fn from(name: T) -> Self {
        Self(name.as_ref().into())
    }
}

impl From<&Self> for Owner {
    fn from(owner: &Self) -> Self {
        owner.clone()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:?})", String::from_utf8_lossy(&self.0))
    }
}

impl ToRedisArgs for Owner {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(&self.0);
    }
}

impl ToSingleRedisArg for Owner {}

impl FromRedisValue for Owner {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        Vec::<u8>::from_redis_value(value).map(|name| Self(name.into()))
    }
}

/// The reply to a granted ACQUIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing token, 1 to 2^53 - 1: larger for every later grant of this lock.
    pub fence: u64,
    /// How many holds the owner has now.
    pub holds: u64,
    /// The lease that remained when the server replied. Use [`Grant::safe_deadline`] to find out how long it lasts.
    pub lease: Duration,
    /// How long this request was queued.
    pub waited: Duration,
}

/// The reply to INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The smallest limit among the holders; `None` if all of them share.
    pub limit: Option<u32>,
    /// The holders, the one that has held the lock the longest first.
    pub holders: Vec<HolderInfo>,
    /// The length of the queue.
    pub waiting: u64,
    /// The first 128 waiters, in queue order.
    pub waiters: Vec<WaiterInfo>,
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The owner.
    pub owner: Owner,
    /// The fencing token.
    pub fence: u64,
    /// The number of holds.
    pub holds: u64,
    /// The remaining lease.
    pub lease: Duration,
    /// How long it has held the lock.
    pub held: Duration,
}

/// A request in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The owner.
    pub owner: Owner,
    /// The requested limit; `None` for a shared request.
    pub limit: Option<u32>,
    /// How long it has waited.
    pub waited: Duration,
    /// The timeout of the request; `None` if it has none.
    pub timeout: Option<Duration>,
    /// Whether it waits without a connection (QUEUE): its answer goes to an inbox. False if an older server does not say.
    pub is_queued: bool,
}

impl Grant {
    /// When the lease may have expired, for a request that was sent at `sent`: `sent + (waited + lease) * 0.999 - 2 ms`.
    ///
    /// This allows for a server clock that runs 0.1 % faster than the client's. A clock that is being slewed can be
    /// faster than that: chronyd may slew by 8 % unless `maxslewrate` is lowered. And no clock counts the time during
    /// which a hypervisor freezes the machine. Only a resource that checks fences is safe against both.
    pub fn safe_deadline(&self, sent: BootInstant) -> BootInstant {
        safe_deadline(sent, self.waited, self.lease)
    }
}

impl FromRedisValue for Grant {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut numbers: Vec<Value> = FromRedisValue::from_redis_value(value)?;
        // A newer server may reply more.
        numbers.truncate(4);
        let (fence, holds, Milliseconds(lease), Milliseconds(waited)) =
            FromRedisValue::from_redis_value(Value::Array(numbers))?;
        Ok(Self {
            fence,
            holds,
            lease,
            waited,
        })
    }
}

impl FromRedisValue for LockInfo {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields(FromRedisValue::from_redis_value(value)?);
        Ok(Self {
            limit: fields.optional("limit")?,
            holders: fields.take("holders")?,
            waiting: fields.take("waiting")?,
            waiters: fields.take("waiters")?,
        })
    }
}

impl FromRedisValue for HolderInfo {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields(FromRedisValue::from_redis_value(value)?);
        Ok(Self {
            owner: fields.take("owner")?,
            fence: fields.take("fence")?,
            holds: fields.take("holds")?,
            lease: fields.take::<Milliseconds>("lease-ms")?.0,
            held: fields.take::<Milliseconds>("held-ms")?.0,
        })
    }
}

impl FromRedisValue for WaiterInfo {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields(FromRedisValue::from_redis_value(value)?);
        Ok(Self {
            owner: fields.take("owner")?,
            limit: fields.optional("limit")?,
            waited: fields.take::<Milliseconds>("waited-ms")?.0,
            timeout: fields.optional("timeout-ms")?.map(Duration::from_millis),
            is_queued: fields.has("wait", b"queue"),
        })
    }
}

/// A time on the wire.
#[doc(hidden)]
pub struct Milliseconds(pub Duration);

impl FromRedisValue for Milliseconds {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        u64::from_redis_value(value).map(|ms| Self(Duration::from_millis(ms)))
    }
}

impl From<Milliseconds> for Duration {
    fn from(time: Milliseconds) -> Self {
        time.0
    }
}

/// A map, or the flat array that RESP2 has in its place. Unknown fields of newer servers are ignored.
struct Fields(HashMap<String, Value>);

impl Fields {
    fn take<T: FromRedisValue>(&mut self, name: &str) -> Result<T, ParsingError> {
        let value = self.0.remove(name);
        let value = value.ok_or_else(|| ParsingError::from(format!("DLOCK.INFO did not return {name}")))?;
        T::from_redis_value(value)
    }

    /// Whether this field is there and is this word.
    fn has(&self, name: &str, word: &[u8]) -> bool {
        matches!(self.0.get(name), Some(Value::BulkString(value)) if value == word)
    }

    /// A number; -1 means none.
    fn optional<T: TryFrom<i64>>(&mut self, name: &str) -> Result<Option<T>, ParsingError> {
        let number: i64 = self.take(name)?;
        let invalid = |_| ParsingError::from(format!("DLOCK.INFO returned an invalid {name}"));
        (number != -1)
            .then(|| T::try_from(number).map_err(invalid))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_elements_of_a_grant_are_ignored() {
        let four = [7, 1, 30_000, 5].map(Value::Int);
        let more = [&four[..], &[Value::SimpleString("new".into()), Value::Nil]].concat();
        for reply in [four.to_vec(), more] {
            let grant = Grant::from_redis_value(Value::Array(reply)).unwrap();
            assert_eq!((grant.fence, grant.holds), (7, 1));
            assert_eq!(grant.lease, Duration::from_secs(30));
        }
        let three = Value::Array([7, 1, 30_000].map(Value::Int).to_vec());
        assert!(Grant::from_redis_value(three).is_err());
    }

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

    #[test]
    fn unique_owner_names_host_and_pid() {
        let (one, other) = (Owner::unique(), Owner::unique());
        assert_ne!(one, other);
        let name = one.to_string();
        let parts: Vec<&str> = name.rsplitn(3, ':').collect();
        assert_eq!(parts[0].len(), 32);
        assert_eq!(parts[1], process::id().to_string());
        assert!(!parts[2].is_empty());
        assert!(one.as_bytes().len() <= 512);
    }

    #[test]
    fn random_names_of_forked_processes_differ() {
        let random = rand::random();
        assert_ne!(name_of(random, 4711), name_of(random, 4712));
        assert_eq!(name_of(random, 4711), name_of(random, 4711));
        assert_ne!(name_of(random, 4711), name_of(!random, 4711));
    }
}
