use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, ParsingError, Value};

use crate::owner::Owner;

/// What a granted ACQUIRE answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The fencing token, 1 to 2^53 - 1: larger for every later grant of this lock.
    pub fence: u64,
    /// How often the owner holds the lock now.
    pub holds: u64,
    /// The lease that remained when the server answered. Not a safe deadline by itself: see
    /// [`safe_deadline`](crate::clock::safe_deadline).
    pub lease: Duration,
    /// For how long this request was queued.
    pub waited: Duration,
}

/// What INFO tells of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The smallest limit among the holders; `None` when all of them share.
    pub limit: Option<u32>,
    /// Those that hold the lock, the one that has held it the longest first.
    pub holders: Vec<HolderInfo>,
    /// How many requests wait.
    pub waiting: u64,
    /// The first 128 of them, in queue order.
    pub waiters: Vec<WaiterInfo>,
}

/// An owner that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// Who it is.
    pub owner: Owner,
    /// Its fencing token.
    pub fence: u64,
    /// How often it holds the lock.
    pub holds: u64,
    /// What remains of its lease.
    pub lease: Duration,
    /// For how long it has held the lock.
    pub held: Duration,
}

/// A request that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// Who asks.
    pub owner: Owner,
    /// With how many holders it would put up; `None` for a shared request.
    pub limit: Option<u32>,
    /// For how long it has waited.
    pub waited: Duration,
    /// For how long it waits in all; `None` without limit.
    pub timeout: Option<Duration>,
}

impl FromRedisValue for Grant {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let (fence, holds, lease_ms, waited_ms) = FromRedisValue::from_redis_value(value)?;
        Ok(Self {
            fence,
            holds,
            lease: Duration::from_millis(lease_ms),
            waited: Duration::from_millis(waited_ms),
        })
    }
}

impl FromRedisValue for LockInfo {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields::from_redis_value(value)?;
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
        let mut fields = Fields::from_redis_value(value)?;
        Ok(Self {
            owner: fields.take("owner")?,
            fence: fields.take("fence")?,
            holds: fields.take("holds")?,
            lease: Duration::from_millis(fields.take("lease-ms")?),
            held: Duration::from_millis(fields.take("held-ms")?),
        })
    }
}

impl FromRedisValue for WaiterInfo {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields::from_redis_value(value)?;
        Ok(Self {
            owner: fields.take("owner")?,
            limit: fields.optional("limit")?,
            waited: Duration::from_millis(fields.take("waited-ms")?),
            timeout: fields.optional("timeout-ms")?.map(Duration::from_millis),
        })
    }
}

/// A map, or what RESP2 has in its place. Fields that a newer server adds are no error.
struct Fields(HashMap<String, Value>);

impl FromRedisValue for Fields {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        FromRedisValue::from_redis_value(value).map(Self)
    }
}

impl Fields {
    fn take<T: FromRedisValue>(&mut self, name: &str) -> Result<T, ParsingError> {
        let value = self.0.remove(name);
        let value = value.ok_or_else(|| ParsingError::from(format!("DLOCK.INFO did not tell {name}")))?;
        T::from_redis_value(value)
    }

    /// A number that -1 stands in for the lack of.
    fn optional<T: TryFrom<i64>>(&mut self, name: &str) -> Result<Option<T>, ParsingError> {
        let number: i64 = self.take(name)?;
        if number == -1 {
            return Ok(None);
        }
        let number = T::try_from(number);
        number
            .map(Some)
            .map_err(|_| ParsingError::from(format!("DLOCK.INFO told an impossible {name}")))
    }
}
