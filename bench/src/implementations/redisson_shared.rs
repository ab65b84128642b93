//! Redisson's read-write lock and its semaphore, from github.com/redisson/redisson at 6686397:
//! `org.redisson.RedissonReadLock`, `RedissonWriteLock` and `RedissonSemaphore` (`tryAcquireAsync0`,
//! `releaseAsync`, `acquire`). They wait like `RLock`.
//!
//! The semaphore is a counter without owners and leases, so it does less than the others here, and the permit of a
//! client that dies is lost.

use std::time::{Duration, Instant};

use super::counting::{CountingConnection, expect};
use super::redisson::{LATCH_MS, Subscription, latch, lock_name, request_id, ttl, wait_on};
use super::{Client, ClientConfig, PERMITS, load_script};
use crate::Result;
use crate::implementations::command::is_one;
use crate::resp::Reply;

const TRY_READ: &str = "local mode = redis.call('hget', KEYS[1], 'mode'); \
if (mode == false) then \
redis.call('hset', KEYS[1], 'mode', 'read'); \
redis.call('hset', KEYS[1], ARGV[2], 1); \
redis.call('set', KEYS[2] .. ':1', 1); \
redis.call('pexpire', KEYS[2] .. ':1', ARGV[1]); \
redis.call('pexpire', KEYS[1], ARGV[1]); \
return nil; \
end; \
if (mode == 'read') or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1) then \
local ind = redis.call('hincrby', KEYS[1], ARGV[2], 1); \
local key = KEYS[2] .. ':' .. ind;\
redis.call('set', key, 1); \
redis.call('pexpire', key, ARGV[1]); \
local remainTime = redis.call('pttl', KEYS[1]); \
redis.call('pexpire', KEYS[1], math.max(remainTime, ARGV[1])); \
return nil; \
end;\
return redis.call('pttl', KEYS[1]);";

const UNLOCK_READ: &str = "local val = redis.call('get', KEYS[5]); \
if val ~= false then \
return tonumber(val);\
end; \
local mode = redis.call('hget', KEYS[1], 'mode'); \
if (mode == false) then \
redis.call(ARGV[3], KEYS[2], ARGV[1]); \
redis.call('set', KEYS[5], 1, 'px', ARGV[4]); \
return nil; \
end; \
local lockExists = redis.call('hexists', KEYS[1], ARGV[2]); \
if (lockExists == 0) then \
return nil;\
end; \
local counter = redis.call('hincrby', KEYS[1], ARGV[2], -1); \
if (counter == 0) then \
redis.call('hdel', KEYS[1], ARGV[2]); \
end;\
redis.call('del', KEYS[3] .. ':' .. (counter+1)); \
if (redis.call('hlen', KEYS[1]) > 1) then \
local maxRemainTime = -3; \
local keys = redis.call('hkeys', KEYS[1]); \
for n, key in ipairs(keys) do \
counter = tonumber(redis.call('hget', KEYS[1], key)); \
if type(counter) == 'number' then \
for i=counter, 1, -1 do \
local remainTime = redis.call('pttl', KEYS[4] .. ':' .. key .. ':rwlock_timeout:' .. i); \
maxRemainTime = math.max(remainTime, maxRemainTime);\
end; \
end; \
end; \
if maxRemainTime > 0 then \
redis.call('pexpire', KEYS[1], maxRemainTime); \
redis.call('set', KEYS[5], 0, 'px', ARGV[4]); \
return 0; \
end;\
if mode == 'write' then \
redis.call('set', KEYS[5], 0, 'px', ARGV[4]); \
return 0;\
end; \
end; \
redis.call('del', KEYS[1]); \
redis.call(ARGV[3], KEYS[2], ARGV[1]); \
redis.call('set', KEYS[5], 1, 'px', ARGV[4]); \
return 1; ";

const TRY_WRITE: &str = "local mode = redis.call('hget', KEYS[1], 'mode'); \
if (mode == false) then \
redis.call('hset', KEYS[1], 'mode', 'write'); \
redis.call('hset', KEYS[1], ARGV[2], 1); \
redis.call('pexpire', KEYS[1], ARGV[1]); \
return nil; \
end; \
if (mode == 'write') then \
if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then \
redis.call('hincrby', KEYS[1], ARGV[2], 1); \
local currentExpire = redis.call('pttl', KEYS[1]); \
redis.call('pexpire', KEYS[1], currentExpire + ARGV[1]); \
return nil; \
end; \
end;\
return redis.call('pttl', KEYS[1]);";

const UNLOCK_WRITE: &str = "local val = redis.call('get', KEYS[3]); \
if val ~= false then \
return tonumber(val);\
end; \
local mode = redis.call('hget', KEYS[1], 'mode'); \
if (mode == false) then \
redis.call(ARGV[4], KEYS[2], ARGV[1]); \
redis.call('set', KEYS[3], 1, 'px', ARGV[5]); \
return nil; \
end;\
if (mode == 'write') then \
local lockExists = redis.call('hexists', KEYS[1], ARGV[3]); \
if (lockExists == 0) then \
return nil;\
else \
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); \
if (counter > 0) then \
redis.call('pexpire', KEYS[1], ARGV[2]); \
redis.call('set', KEYS[3], 0, 'px', ARGV[5]); \
return 0; \
else \
redis.call('hdel', KEYS[1], ARGV[3]); \
if (redis.call('hlen', KEYS[1]) == 1) then \
redis.call('del', KEYS[1]); \
redis.call(ARGV[4], KEYS[2], ARGV[1]); \
else \
redis.call('hset', KEYS[1], 'mode', 'read'); \
end; \
redis.call('set', KEYS[3], 1, 'px', ARGV[5]); \
return 1; \
end; \
end; \
end; \
return nil;";

const TRY_PERMIT: &str = "local value = redis.call('get', KEYS[1]); \
if (value ~= false and tonumber(value) >= tonumber(ARGV[1])) then \
local val = redis.call('decrby', KEYS[1], ARGV[1]); \
return 1; \
end; \
return 0;";

const RELEASE_PERMIT: &str = "local value = redis.call('incrby', KEYS[1], ARGV[1]); \
redis.call(ARGV[2], KEYS[2], value); ";

/// `LockPubSub`: wakes one waiter, or all.
const UNLOCK_MESSAGE: &str = "0";
const READ_UNLOCK_MESSAGE: &str = "1";

/// State common to the three.
struct Parts {
    connection: CountingConnection,
    channel: Subscription,
    key: String,
    owner: String,
    lease_ms: String,
    acquire: String,
    release: String,
}

impl Parts {
    fn open(config: &ClientConfig, channel: &str, acquire: &str, release: &str) -> Result<Self> {
        let mut connection = CountingConnection::new(config.server.connect()?);
        let acquire = load_script(connection.uncounted(), acquire)?;
        let release = load_script(connection.uncounted(), release)?;
        let channel = format!("{channel}:{{{}}}", config.key);
        Ok(Self {
            connection,
            channel: Subscription::new(config.server.connect()?, channel),
            key: config.key.into(),
            owner: lock_name(config.number),
            lease_ms: config.lease_ms.to_string(),
            acquire,
            release,
        })
    }

    fn commands(&self) -> Option<u64> {
        Some(self.connection.commands + self.channel.commands())
    }
}

struct Reader(Parts);

pub fn open_reader(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let parts = Parts::open(config, "redisson_rwlock", TRY_READ, UNLOCK_READ)?;
    Ok(Box::new(Reader(parts)))
}

impl Reader {
    /// `getReadWriteTimeoutNamePrefix`.
    fn timeouts(&self) -> String {
        format!("{{{}}}:{}:rwlock_timeout", self.0.key, self.0.owner)
    }
}

impl Client for Reader {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        let timeouts = self.timeouts();
        let Parts {
            connection,
            channel,
            key,
            owner,
            lease_ms,
            acquire,
            ..
        } = &mut self.0;
        let write_name = format!("{owner}:write");
        let command = [
            "EVALSHA",
            acquire,
            "2",
            key,
            &timeouts,
            lease_ms,
            owner,
            &write_name,
        ];
        wait_on(channel, end, || ttl(&connection.call(&command)?))
    }

    fn release(&mut self) -> Result<()> {
        let timeouts = self.timeouts();
        let Parts {
            connection,
            channel,
            key,
            owner,
            release,
            ..
        } = &mut self.0;
        let latch = latch(key) + &request_id();
        let prefix = format!("{{{key}}}");
        let reply = connection.call(&[
            "EVALSHA",
            release,
            "5",
            key,
            channel.name(),
            &timeouts,
            &prefix,
            &latch,
            UNLOCK_MESSAGE,
            owner,
            "publish",
            LATCH_MS,
        ])?;
        expect(matches!(reply, Reply::Integer(0 | 1)), &reply)?;
        connection.call(&["DEL", &latch]).map(drop)
    }

    fn commands(&self) -> Option<u64> {
        self.0.commands()
    }
}

struct Writer(Parts);

pub fn open_writer(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let mut parts = Parts::open(config, "redisson_rwlock", TRY_WRITE, UNLOCK_WRITE)?;
    parts.owner += ":write";
    Ok(Box::new(Writer(parts)))
}

impl Client for Writer {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        let Parts {
            connection,
            channel,
            key,
            owner,
            lease_ms,
            acquire,
            ..
        } = &mut self.0;
        let command = ["EVALSHA", acquire, "1", key, lease_ms, owner];
        wait_on(channel, end, || ttl(&connection.call(&command)?))
    }

    fn release(&mut self) -> Result<()> {
        let Parts {
            connection,
            channel,
            key,
            owner,
            lease_ms,
            release,
            ..
        } = &mut self.0;
        let latch = latch(key) + &request_id();
        let reply = connection.call(&[
            "EVALSHA",
            release,
            "3",
            key,
            channel.name(),
            &latch,
            READ_UNLOCK_MESSAGE,
            lease_ms,
            owner,
            "publish",
            LATCH_MS,
        ])?;
        expect(is_one(&reply), &reply)?;
        connection.call(&["DEL", &latch]).map(drop)
    }

    fn commands(&self) -> Option<u64> {
        self.0.commands()
    }
}

struct Semaphore(Parts);

pub fn open_semaphore(config: &ClientConfig) -> Result<Box<dyn Client>> {
    let mut parts = Parts::open(config, "redisson_sc", TRY_PERMIT, RELEASE_PERMIT)?;
    // `trySetPermits`: the first client sets the number of permits.
    let permits = ["SET", &parts.key, &PERMITS.to_string(), "NX"];
    parts.connection.uncounted().call(&permits)?;
    Ok(Box::new(Semaphore(parts)))
}

impl Client for Semaphore {
    fn acquire(&mut self, end: Instant) -> Result<bool> {
        let Parts {
            connection,
            channel,
            key,
            acquire,
            ..
        } = &mut self.0;
        let command = ["EVALSHA", acquire, "1", key, "1"];
        wait_on(channel, end, || match connection.call(&command)? {
            Reply::Integer(1) => Ok(None),
            // There is no lease whose end to wait for.
            _ => Ok(Some(Duration::MAX)),
        })
    }

    fn release(&mut self) -> Result<()> {
        let Parts {
            connection,
            channel,
            key,
            release,
            ..
        } = &mut self.0;
        let command = ["EVALSHA", release, "2", key, channel.name(), "1", "publish"];
        connection.call(&command).map(drop)
    }

    fn commands(&self) -> Option<u64> {
        self.0.commands()
    }
}
