use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, ParsingError, Value};

use crate::clock::{BootInstant, safe_deadline};
use crate::owner::Owner;

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
    /// Whether it waits without a connection (QUEUE): its answer goes to an inbox. False if an older server does not tell.
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
        let (fence, holds, Milliseconds(lease), Milliseconds(waited)) =
            FromRedisValue::from_redis_value(value)?;
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
pub(crate) struct Milliseconds(pub Duration);

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
