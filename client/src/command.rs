//! What is sent for a lock, and what the server replies.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::num::NonZeroU64;
use std::process;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{Arg, Cmd, FromRedisValue, ParsingError, RedisWrite, ToRedisArgs, ToSingleRedisArg, Value};

use crate::error::Error;
use crate::hold::{Plan, random_bits};

/// How many owners may hold a lock at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Mutex,
    AtMost(u32),
    Shared,
}

/// An acquisition. Each of its commands carries its request id, however often it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub key: Arc<[u8]>,
    /// Tells keys apart, nearly always: those that share one only wait for each other.
    pub key_hash: u64,
    /// That of the application, or a unique one, once somebody asks for it.
    pub owner: OnceLock<Owner>,
    /// Its number in this process: later ones have larger ones.
    pub number: u64,
    pub process: Arc<ProcessName>,
    pub limit: Limit,
    /// The smallest fence of the grant, of a lock over several servers.
    pub min_fence: Option<NonZeroU64>,
    pub plan: Plan,
    /// Whether it waits if the lock is taken.
    pub waits: bool,
}

impl Request {
    /// One of which only an answer tells: enough to take it back.
    pub fn answered(number: u64, key: &[u8], owner: &[u8], process: &Arc<ProcessName>) -> Self {
        Self {
            key: key.into(),
            key_hash: 0,
            owner: Owner(owner.into()).into(),
            number,
            process: Arc::clone(process),
            limit: Limit::Mutex,
            min_fence: None,
            plan: Plan::default(),
            waits: false,
        }
    }

    /// `DLOCK.ACQUIRE key owner lease-ms [SHARED | LIMIT n] [QUEUE inbox 0] REQID id [MINFENCE fence]`
    pub fn acquire(&self, inbox: &InboxName) -> Cmd {
        let mut command = self.command("DLOCK.ACQUIRE");
        command.arg(whole_ms(self.plan.first_lease()));
        match self.limit {
            Limit::Mutex => {}
            Limit::AtMost(limit) => _ = command.arg("LIMIT").arg(limit),
            Limit::Shared => _ = command.arg("SHARED"),
        }
        if self.waits {
            command.arg("QUEUE").arg(inbox).arg(0);
        }
        self.add_id(&mut command);
        if let Some(fence) = self.min_fence {
            command.arg("MINFENCE").arg(fence.get());
        }
        command
    }

    /// `DLOCK.EXTEND key owner lease-ms FENCE fence | REQID id`
    ///
    /// A fence that can be raised is not always known.
    pub fn extend(&self, lease: Duration, fence: u64) -> Cmd {
        let mut command = self.command("DLOCK.EXTEND");
        command.arg(whole_ms(lease));
        match self.min_fence {
            None => _ = command.arg("FENCE").arg(fence),
            Some(_) => self.add_id(&mut command),
        }
        command
    }

    /// `DLOCK.EXTEND key owner lease-ms`, of any hold of the owner. While a grace period runs, the server rejects it.
    pub fn extend_any(&self) -> Cmd {
        self.command("DLOCK.EXTEND").arg(1).take()
    }

    /// `DLOCK.RELEASE key owner [FENCE fence] REQID id`
    ///
    /// Without a fence it takes the request back: it leaves the queue, and what it was granted is released.
    pub fn release(&self, fence: Option<NonZeroU64>) -> Cmd {
        let mut command = self.command("DLOCK.RELEASE");
        if let Some(fence) = fence {
            command.arg("FENCE").arg(fence.get());
        }
        self.add_id(&mut command);
        command
    }

    /// `DLOCK.OWNER key`
    pub fn holder(&self) -> Cmd {
        redis::cmd("DLOCK.OWNER").arg(&*self.key).take()
    }

    /// With room for its usual arguments, so that it does not grow with each of them.
    fn command(&self, name: &str) -> Cmd {
        const ARGUMENTS: usize = 10;
        const BYTES: usize = 256;
        let mut command = Cmd::with_capacity(ARGUMENTS, BYTES);
        command.arg(name).arg(&*self.key);
        match self.owner.get() {
            Some(owner) => command.arg(owner),
            None => self.process.with_owner(self.number, |name| command.arg(name)),
        };
        command
    }

    pub fn owner(&self) -> &Owner {
        let unique = || self.process.with_owner(self.number, |name| Owner(name.into()));
        self.owner.get_or_init(unique)
    }

    /// The same as another acquisition, with an owner of its own unless the application has named one.
    pub fn anew(&self, number: u64) -> Self {
        let is_named = self.owner.get().filter(|owner| {
            self.process
                .with_owner(self.number, |unique| owner.as_bytes() != unique)
        });
        Self {
            owner: is_named.cloned().map_or_else(OnceLock::new, OnceLock::from),
            number,
            ..self.clone()
        }
    }

    /// `REQID random:number`
    fn add_id(&self, command: &mut Cmd) {
        const LONGEST: usize = 32 + 1 + 20;
        let mut id = [0; LONGEST];
        let mut rest = &mut id[..];
        // It has room for both.
        let _ = rest.write_all(&self.process.random);
        let _ = write!(rest, ":{}", self.number);
        let length = LONGEST - rest.len();
        command.arg("REQID").arg(&id[..length]);
    }
}

/// Lua that stops a script or a function before it writes, unless the owner `ARGV[1]` holds the lock `KEYS[1]` under the
/// fencing token `ARGV[2]`. Put it first.
/// [`Guard::fenced`](crate::Guard::fenced) shows one.
pub const LUA_FENCE_CHECK: &str = "redis.call('DLOCK.GUARD', KEYS[1], ARGV[1], ARGV[2])\n";

/// `DLOCK.GUARD key owner fence command [arg ...]`: the server runs the command only if the owner holds the lock under
/// this fencing token.
pub(crate) fn fenced(key: &[u8], owner: &Owner, fence: u64, inner: &Cmd) -> Cmd {
    let mut outer = redis::cmd("DLOCK.GUARD");
    outer.arg(key).arg(owner).arg(fence);
    for argument in inner.args_iter() {
        match argument {
            Arg::Simple(bytes) => outer.arg(bytes),
            // Of a scan that has not begun.
            _ => outer.arg(0),
        };
    }
    outer
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The time of an application in the unit of the server, whose shortest lease is 1 ms.
pub(crate) fn rounded_up(time: Duration) -> Duration {
    let part = Duration::from_nanos(u64::from(time.subsec_nanos() % 1_000_000));
    match part.is_zero() {
        true => time,
        false => time.saturating_add(Duration::from_millis(1)) - part,
    }
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

const LONGEST_HOST: usize = 255;
/// `host:pid:random`
const LONGEST_NAME: usize = LONGEST_HOST + 1 + 10 + 1 + 32;

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
        let host = &host[..host.len().min(LONGEST_HOST)];
        Self {
            name: [host, format!(":{pid}:").as_bytes(), &random].concat(),
            random,
        }
    }

    /// The number in a request id of this process.
    pub fn number(&self, id: &[u8]) -> Option<u64> {
        let number = id.strip_prefix(&self.random)?.strip_prefix(b":")?;
        std::str::from_utf8(number).ok()?.parse().ok()
    }

    /// Passes on the owner of one acquisition: `host:pid:random:number`.
    pub fn with_owner<T>(&self, number: u64, use_it: impl FnOnce(&[u8]) -> T) -> T {
        const LONGEST: usize = LONGEST_NAME + 1 + 20;
        let mut name = [0; LONGEST];
        let mut rest = &mut name[..];
        // It has room for both.
        let _ = rest.write_all(&self.name);
        let _ = write!(rest, ":{number}");
        let length = LONGEST - rest.len();
        use_it(&name[..length])
    }
}

/// The name of an inbox.
pub(crate) type InboxName = [u8; 32];

/// 128 random bits as 32 hexadecimal digits. Forked processes continue with the same random numbers; their pids make the
/// names unique.
pub(crate) fn random_name() -> InboxName {
    name_of(random_bits(), process::id())
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

/// What was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The fencing token, 1 to 2^53 - 1: larger for every later grant of this lock.
    pub fence: u64,
    /// The lease that remained when the server replied.
    pub lease: Duration,
    /// How long the reply had been waiting since it was asked for.
    pub waited: Duration,
}

/// What an inbox has for a request.
pub(crate) struct Answer<'a> {
    pub word: &'a [u8],
    pub id: &'a [u8],
    pub key: &'a [u8],
    pub owner: &'a [u8],
    rest: &'a [Value],
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
    /// `fence holds lease-ms [waited-ms]`, as the reply to ACQUIRE and in answers. A newer server may reply more.
    pub fn of(numbers: &[Value], waited: Option<Duration>) -> Option<Self> {
        let [Value::Int(fence), Value::Int(_), lease, rest @ ..] = numbers else {
            return None;
        };
        let waited = waited.or_else(|| milliseconds(rest.first()?));
        Some(Self {
            fence: u64::try_from(*fence).ok()?,
            lease: milliseconds(lease)?,
            waited: waited?,
        })
    }
}

impl<'a> Answer<'a> {
    /// Answers that this client does not know are ignored.
    pub fn of(value: &'a Value) -> Option<Self> {
        let Value::Array(fields) = value else {
            return None;
        };
        let [word, id, key, owner, rest @ ..] = &fields[..] else {
            return None;
        };
        Some(Self {
            word: bytes(word)?,
            id: bytes(id)?,
            key: bytes(key)?,
            owner: bytes(owner)?,
            rest,
        })
    }

    /// What was granted. It waited for as long as the reply with it.
    pub fn grant(&self, waited: Duration) -> Option<Grant> {
        Grant::of(self.rest, Some(waited))
    }

    /// The error that ended the request.
    pub fn error(&self) -> Error {
        let message = self.rest.first().and_then(bytes).unwrap_or_default();
        let message = String::from_utf8_lossy(message);
        let (code, detail) = message.split_once(' ').unwrap_or((&message, ""));
        redis::make_extension_error(code.to_owned(), Some(detail.to_owned())).into()
    }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
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
            lease: fields.time("lease-ms")?,
            held: fields.time("held-ms")?,
        })
    }
}

impl FromRedisValue for WaiterInfo {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields(FromRedisValue::from_redis_value(value)?);
        Ok(Self {
            owner: fields.take("owner")?,
            limit: fields.optional("limit")?,
            waited: fields.time("waited-ms")?,
            timeout: fields.optional("timeout-ms")?.map(Duration::from_millis),
            is_queued: fields.has("wait", b"queue"),
        })
    }
}

/// A time on the wire.
pub(crate) fn milliseconds(value: &Value) -> Option<Duration> {
    match value {
        Value::Int(ms) => u64::try_from(*ms).ok().map(Duration::from_millis),
        _ => None,
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

    fn time(&mut self, name: &str) -> Result<Duration, ParsingError> {
        self.take(name).map(Duration::from_millis)
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
            let grant = Grant::of(&reply, None).unwrap();
            assert_eq!((grant.fence, grant.lease), (7, Duration::from_secs(30)));
            assert_eq!(grant.waited, Duration::from_millis(5));
        }
        assert_eq!(Grant::of(&four[..3], None), None);
    }

    #[test]
    fn fenced_command_has_lock_first_then_all_arguments() {
        let inner = redis::cmd("HSCAN")
            .arg("h")
            .cursor_arg(0)
            .arg("COUNT")
            .arg(5)
            .clone();
        let outer = fenced(b"door", &"alice".into(), 7, &inner);
        let expected = "DLOCK.GUARD door alice 7 HSCAN h 0 COUNT 5".split(' ');
        let expected: Vec<Vec<u8>> = expected.map(Into::into).collect();
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
        let random = random_bits();
        assert_ne!(name_of(random, 4711), name_of(random, 4712));
        assert_eq!(name_of(random, 4711), name_of(random, 4711));
        assert_ne!(name_of(random, 4711), name_of(!random, 4711));
    }
}
